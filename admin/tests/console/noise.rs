//! Whatever a client sends, the console answers in whole messages and lives.

use admin::{Answer, Console, Facts, Next, Role};

use crate::talk::{messages, string};

/// Numbers as good as dice, the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % sides
    }
}

/// Pieces that are near to something, so that noise gets far.
const PIECES: &[&[u8]] = &[
    b"SHOW ",
    b"POOLS",
    b"STATS",
    b"SET ",
    b"PAUSE ",
    b"KILL_CLIENT ",
    b"DEALLOCATE ",
    b"BEGIN",
    b" = ",
    b" TO ",
    b"'",
    b"\"",
    b"\"\"",
    b";",
    b"--",
    b"/*",
    b"*/",
    b"\n",
    b"\0",
    b"\0\0",
    b"\0\x01",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"S",
    b"P",
    b"p1",
    b"$1",
    b"\xc3",
    "é".as_bytes(),
    b"pgbouncer",
    b"*",
    b",",
];

const TAGS: &[u8] = b"QPBDECHSQPBDEXFdcfp\0\xff";

#[test]
fn noise_is_answered_in_whole_messages() {
    for seed in 1..=300 {
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let roles = [Role::Admin, Role::Stats, Role::Nobody];
        let mut console = Console::new(roles[dice.roll(3)]);
        for _ in 0..100 {
            let tag = TAGS[dice.roll(TAGS.len())];
            let body: Vec<u8> = (0..dice.roll(12))
                .flat_map(|_| match dice.roll(8) {
                    0 => vec![dice.roll(256) as u8],
                    _ => PIECES[dice.roll(PIECES.len())].to_vec(),
                })
                .collect();
            let mut out = Vec::new();
            match console.message(tag, &body, &mut out) {
                Next::Run(_) if dice.roll(2) == 0 => console.answer(&Answer::Done, &mut out),
                Next::Run(_) => console.answer(&Answer::Facts(&Facts::default()), &mut out),
                Next::More | Next::Close => {}
            }
            // Panics if the last one is cut short.
            messages(&out);
        }
        let mut out = Vec::new();
        console.message(b'S', b"", &mut out);
        assert_eq!(messages(&out).last().map(|(tag, _)| *tag), Some(b'Z'), "seed {seed}");
    }
}

/// Every message of a good conversation, cut off at every byte, and with a byte too many.
#[test]
fn messages_too_short_or_too_long_are_refused() {
    let bind = [string("p"), string("s"), vec![0, 1, 0, 1, 0, 0, 0, 1, 0, 1]].concat();
    for (tag, body) in [
        (b'Q', string("SHOW POOLS")),
        (b'P', [string("s"), string("SHOW STATE"), vec![0, 1, 0, 0, 0, 23]].concat()),
        (b'B', bind),
        (b'D', b"Ss\0".to_vec()),
        (b'C', b"Ss\0".to_vec()),
        (b'E', b"p\0\0\0\0\0".to_vec()),
    ] {
        for end in 0..body.len() {
            let mut out = Vec::new();
            let next = Console::new(Role::Admin).message(tag, &body[..end], &mut out);
            assert_eq!(next, Next::More);
            assert_eq!(messages(&out)[0].0, b'E', "{} to {end}", char::from(tag));
        }
        let mut out = Vec::new();
        Console::new(Role::Admin).message(tag, &[body, vec![0]].concat(), &mut out);
        let said = String::from_utf8_lossy(&out).into_owned();
        assert!(said.contains("C08P01\0Minvalid message"), "{}: {said}", char::from(tag));
    }
}

/// Nobody waits while a console thinks about a megabyte.
#[test]
fn long_texts_take_no_longer_than_their_length() {
    let length = 1 << 20;
    for piece in ["/*", "/*/", "*/", "--\n", "\"\"", "''", "a ", ";", "\"", "é"] {
        let text = ["SHOW ", &piece.repeat(length / piece.len()), "\0"].concat();
        let mut out = Vec::new();
        let next = Console::new(Role::Stats).message(b'Q', text.as_bytes(), &mut out);
        assert_eq!(next, Next::More);
        assert!(out.len() < 2_000, "{piece}");
    }
}
