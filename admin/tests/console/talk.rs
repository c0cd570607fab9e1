//! A client of a console, and what it hears.

use admin::{Answer, Command, Console, Facts, Next, Role};

/// A conversation with one console.
pub(crate) struct Talk {
    pub(crate) console: Console,
    /// What the worker would answer SHOW with.
    pub(crate) facts: Facts,
    /// What the worker was told to do.
    pub(crate) ran: Vec<Command>,
    heard: Vec<u8>,
}

impl Talk {
    pub(crate) fn new(role: Role) -> Self {
        Self {
            console: Console::new(role),
            facts: Facts::default(),
            ran: Vec::new(),
            heard: Vec::new(),
        }
    }

    /// Says one message; a command that comes of it is done at once.
    pub(crate) fn say(&mut self, tag: u8, body: &[u8]) -> &mut Self {
        if let Next::Run(command) = self.console.message(tag, body, &mut self.heard) {
            let answer = match command {
                Command::Show(_) => Answer::Facts(&self.facts),
                _ => Answer::Done,
            };
            self.console.answer(&answer, &mut self.heard);
            self.ran.push(command);
        }
        self
    }

    pub(crate) fn query(&mut self, text: &str) -> Vec<String> {
        self.say(b'Q', &string(text)).heard()
    }

    pub(crate) fn parse(&mut self, name: &str, text: &str) -> &mut Self {
        self.say(b'P', &[string(name), string(text), vec![0, 0]].concat())
    }

    pub(crate) fn bind(&mut self, portal: &str, statement: &str, formats: &[u16]) -> &mut Self {
        let mut body = [string(portal), string(statement), vec![0; 4]].concat();
        for word in [formats.len() as u16].iter().chain(formats) {
            body.extend_from_slice(&word.to_be_bytes());
        }
        self.say(b'B', &body)
    }

    pub(crate) fn describe(&mut self, kind: u8, name: &str) -> &mut Self {
        self.say(b'D', &[vec![kind], string(name)].concat())
    }

    pub(crate) fn execute(&mut self, portal: &str, rows_max: i32) -> &mut Self {
        self.say(b'E', &[string(portal), rows_max.to_be_bytes().to_vec()].concat())
    }

    pub(crate) fn close(&mut self, kind: u8, name: &str) -> &mut Self {
        self.say(b'C', &[vec![kind], string(name)].concat())
    }

    pub(crate) fn sync(&mut self) -> Vec<String> {
        self.say(b'S', b"").heard()
    }

    /// What was heard since the last time, a line a message.
    pub(crate) fn heard(&mut self) -> Vec<String> {
        messages(&std::mem::take(&mut self.heard)).iter().map(line).collect()
    }
}

pub(crate) fn string(text: &str) -> Vec<u8> {
    [text.as_bytes(), b"\0"].concat()
}

/// Tag and body of each message. Panics if the bytes do not end where the last one ends.
pub(crate) fn messages(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut messages = Vec::new();
    while !bytes.is_empty() {
        let (tag, len) = (bytes[0], u32::from_be_bytes(bytes[1..5].try_into().expect("four")));
        messages.push((tag, bytes[5..=len as usize].to_vec()));
        bytes = &bytes[len as usize + 1..];
    }
    messages
}

/// `T name:oid/size/format …`, `D value|value`, and all else with its zeros as blanks.
fn line((tag, body): &(u8, Vec<u8>)) -> String {
    let tag = char::from(*tag);
    match tag {
        'T' => format!("T {}", columns(body).join(" ")),
        'D' => format!("D {}", values(body).join("|")),
        't' => format!("t {}", body.escape_ascii()),
        _ => {
            format!("{tag} {}", String::from_utf8_lossy(body).replace('\0', " ")).trim_end().into()
        }
    }
}

pub(crate) fn columns(mut body: &[u8]) -> Vec<String> {
    let count = word(&mut body);
    let columns = (0..count).map(|_| {
        let end = body.iter().position(|byte| *byte == 0).expect("a name");
        let name = String::from_utf8_lossy(&body[..end]).into_owned();
        body = &body[end + 1..];
        let words: Vec<i16> = (0..9).map(|_| word(&mut body)).collect();
        assert_eq!(words[..3], [0, 0, 0], "columns of no table");
        assert_eq!(words[6..8], [-1, -1], "no modifier");
        format!("{name}:{}/{}/{}", words[4], words[5], words[8])
    });
    let columns = columns.collect();
    assert!(body.is_empty());
    columns
}

fn values(mut body: &[u8]) -> Vec<String> {
    let count = word(&mut body);
    let values = (0..count).map(|_| {
        let len = i32::from_be_bytes(body[..4].try_into().expect("four"));
        body = &body[4..];
        let Ok(len) = usize::try_from(len) else { return "NULL".to_owned() };
        let value = body[..len].escape_ascii().to_string();
        body = &body[len..];
        value
    });
    let values = values.collect();
    assert!(body.is_empty());
    values
}

fn word(body: &mut &[u8]) -> i16 {
    let (word, rest) = body.split_first_chunk().expect("two");
    *body = rest;
    i16::from_be_bytes(*word)
}
