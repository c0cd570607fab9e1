//! The messages of a client, as bytes.

/// A message: tag, length, body.
#[must_use]
pub fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    bytes.extend(length(body.len() + 4));
    bytes.extend(body);
    bytes
}

/// A message before login has no tag.
#[must_use]
pub fn untagged(code: i32, body: &[u8]) -> Vec<u8> {
    let mut bytes = length(body.len() + 8).to_vec();
    bytes.extend(code.to_be_bytes());
    bytes.extend(body);
    bytes
}

fn length(length: usize) -> [u8; 4] {
    i32::try_from(length).expect("a message is below 2 GB").to_be_bytes()
}

/// A text and its zero byte.
#[must_use]
pub fn text(text: &str) -> Vec<u8> {
    [text.as_bytes(), b"\0"].concat()
}

#[must_use]
pub fn startup(minor: u16, parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut body: Vec<u8> =
        parameters.iter().flat_map(|(name, value)| [text(name), text(value)].concat()).collect();
    body.push(0);
    untagged((3 << 16) | i32::from(minor), &body)
}

#[must_use]
pub fn ssl_request() -> Vec<u8> {
    untagged(80_877_103, b"")
}

#[must_use]
pub fn gss_request() -> Vec<u8> {
    untagged(80_877_104, b"")
}

#[must_use]
pub fn cancel(key: &[u8]) -> Vec<u8> {
    untagged(80_877_102, key)
}

#[must_use]
pub fn query(sql: &str) -> Vec<u8> {
    message(b'Q', &text(sql))
}

#[must_use]
pub fn parse(name: &str, sql: &str) -> Vec<u8> {
    parse_typed(name, sql, &[])
}

#[must_use]
pub fn parse_typed(name: &str, sql: &str, types: &[i32]) -> Vec<u8> {
    let mut body = [text(name), text(sql)].concat();
    body.extend(count(types.len()));
    body.extend(types.iter().flat_map(|oid| oid.to_be_bytes()));
    message(b'P', &body)
}

/// Parameters and results in text.
#[must_use]
pub fn bind(portal: &str, statement: &str, parameters: &[&str]) -> Vec<u8> {
    let mut body = [text(portal), text(statement)].concat();
    body.extend(count(0));
    body.extend(count(parameters.len()));
    for parameter in parameters {
        body.extend(length(parameter.len()));
        body.extend(parameter.as_bytes());
    }
    body.extend(count(0));
    message(b'B', &body)
}

fn count(count: usize) -> [u8; 2] {
    u16::try_from(count).expect("the protocol counts to 65,535").to_be_bytes()
}

#[must_use]
pub fn describe_statement(name: &str) -> Vec<u8> {
    message(b'D', &[b"S", text(name).as_slice()].concat())
}

#[must_use]
pub fn describe_portal(name: &str) -> Vec<u8> {
    message(b'D', &[b"P", text(name).as_slice()].concat())
}

#[must_use]
pub fn close_statement(name: &str) -> Vec<u8> {
    message(b'C', &[b"S", text(name).as_slice()].concat())
}

#[must_use]
pub fn close_portal(name: &str) -> Vec<u8> {
    message(b'C', &[b"P", text(name).as_slice()].concat())
}

/// `rows` 0 means all of them.
#[must_use]
pub fn execute(portal: &str, rows: i32) -> Vec<u8> {
    message(b'E', &[text(portal).as_slice(), &rows.to_be_bytes()].concat())
}

#[must_use]
pub fn sync() -> Vec<u8> {
    message(b'S', b"")
}

#[must_use]
pub fn flush() -> Vec<u8> {
    message(b'H', b"")
}

#[must_use]
pub fn terminate() -> Vec<u8> {
    message(b'X', b"")
}

#[must_use]
pub fn copy_data(data: &[u8]) -> Vec<u8> {
    message(b'd', data)
}

#[must_use]
pub fn copy_done() -> Vec<u8> {
    message(b'c', b"")
}

#[must_use]
pub fn copy_fail(why: &str) -> Vec<u8> {
    message(b'f', &text(why))
}

/// A fast-path call with binary arguments and a binary result.
#[must_use]
pub fn call(function: i32, arguments: &[&[u8]]) -> Vec<u8> {
    let mut body = function.to_be_bytes().to_vec();
    body.extend(count(1));
    body.extend(count(1));
    body.extend(count(arguments.len()));
    for argument in arguments {
        body.extend(length(argument.len()));
        body.extend(*argument);
    }
    body.extend(count(1));
    message(b'F', &body)
}

/// Parse, Bind, Describe, Execute of the unnamed statement, without a Sync.
#[must_use]
pub fn extended(sql: &str, parameters: &[&str]) -> Vec<u8> {
    [parse("", sql), bind("", "", parameters), describe_portal(""), execute("", 0)].concat()
}
