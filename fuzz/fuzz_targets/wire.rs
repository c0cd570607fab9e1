//! Every decoder of the wire, on any body; and the scanner, which must say the same of a stream
//! however it is cut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::*;

fuzz_target!(|data: &[u8]| {
    let Some((which, body)) = data.split_first() else { return };
    match which % 20 {
        0 => drop(Parse::read(body).map(|parse| parse.types.as_bytes().len())),
        1 => {
            if let Some(names) = BindNames::find(body) {
                assert!(names.rest <= body.len());
            }
        }
        2 => drop(Named::read(tag::client::DESCRIBE, body)),
        3 => drop(Query::read(body)),
        4 => drop(Password::read(body)),
        5 => drop(SaslInitial::read(body)),
        6 => drop(Authentication::read(body)),
        7 => drop(ParameterStatus::read(body)),
        8 => drop(BackendKey::read(body)),
        9 => drop(Status::read(body)),
        10 => drop(CommandTag::read(body)),
        11 => drop(Negotiate::read(body).map(|negotiate| negotiate.unknown.count())),
        12 => drop(Notification::read(body)),
        13 => {
            let fields = ErrorFields::new(body);
            let _ = (fields.code(), fields.message(), fields.severity(), fields.count());
        }
        14 => {
            if let Ok(Startup::V3 { parameters, .. }) = Startup::read(body) {
                parameters.count();
            }
            let _ = first_packet(body);
        }
        15 => drop(ParameterDescription::read(body).map(|read| read.types.count())),
        16 => drop(RowDescription::read(body).map(Iterator::count)),
        _ => cuts(body),
    }
});

fn cuts(body: &[u8]) {
    let Some((size, stream)) = body.split_first() else { return };
    let whole = messages([stream].into_iter());
    let cut = messages(stream.chunks(usize::from(*size).max(1)));
    assert_eq!(whole, cut);
}

fn messages<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<(u8, Vec<u8>)>, Option<Malformed>) {
    let (mut scanner, mut heard, mut body) = (Scanner::default(), Vec::new(), Vec::new());
    for mut bytes in pieces {
        loop {
            match scanner.next(&mut bytes) {
                Ok(None) => break,
                Ok(Some(piece)) => {
                    body.extend_from_slice(piece.body);
                    if piece.ends {
                        heard.push((piece.tag, std::mem::take(&mut body)));
                    }
                }
                Err(malformed) => return (heard, Some(malformed)),
            }
        }
    }
    (heard, None)
}
