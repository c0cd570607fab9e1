//! What a text on the console means.
//!
//! One command a text: `WORD [WORD]`, or `SET key = value`, or `SET key TO value`, and a `;` if one
//! likes. Case does not matter. A name that is no word (`my-db`) stands in double quotes, such a
//! value in single ones. Comments are blanks.

use crate::command::Verb;
use crate::courtesy::{Faked, HABITS, Habit, Tail};
use crate::{Command, Refusal, Role};

/// What was said, understood and allowed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Request {
    /// Nothing at all.
    Empty,
    Order(Command),
    ShowFaked(&'static Faked),
    SetFaked,
    /// With the name behind it, or an empty one.
    Habit(&'static Habit, String),
}

/// Reads what somebody with this role says.
pub(crate) fn understand(said: &str, role: Role) -> Result<Request, Refusal> {
    if role < Role::Stats {
        return Err(Refusal::AdminNeeded);
    }
    let invalid = || Refusal::InvalidCommand(said.to_owned());
    let mut tokens = lex(said).ok_or_else(invalid)?;
    if tokens.last() == Some(&Token::Semicolon) {
        tokens.pop();
    }
    if let Some(habit) = habit(&tokens) {
        return Ok(habit);
    }
    match tokens.as_slice() {
        [] => Ok(Request::Empty),
        [Token::Word(set), Token::Word(key), to, Token::Word(value) | Token::Text(value)]
            if set.eq_ignore_ascii_case("SET") && to.means_to() =>
        {
            setting(key, value, role)
        }
        [Token::Word(verb)] => command(verb, "", role, said),
        [Token::Word(verb), Token::Word(argument)] => command(verb, argument, role, said),
        _ => Err(invalid()),
    }
}

fn command(verb: &str, argument: &str, role: Role, said: &str) -> Result<Request, Refusal> {
    if verb.len() > VERB_BYTES_MAX || argument.len() > ARGUMENT_BYTES_MAX {
        return Err(Refusal::BadArguments);
    }
    let verb = Verb::named(verb).ok_or_else(|| Refusal::InvalidCommand(said.to_owned()))?;
    match Faked::named(argument) {
        Some(faked) if verb.shows() => Ok(Request::ShowFaked(faked)),
        _ => verb.order(argument, role, said).map(Request::Order),
    }
}

fn setting(key: &str, value: &str, role: Role) -> Result<Request, Refusal> {
    if key.is_empty() || key.len() > ARGUMENT_BYTES_MAX || value.len() > VALUE_BYTES_MAX {
        return Err(Refusal::BadArguments);
    }
    if Faked::named(key).is_some() {
        return Ok(Request::SetFaked);
    }
    if role < Role::Admin {
        return Err(Refusal::AdminNeeded);
    }
    Ok(Request::Order(Command::Set { key: key.to_owned(), value: value.to_owned() }))
}

/// PgBouncer's limits.
const VERB_BYTES_MAX: usize = 15;
const ARGUMENT_BYTES_MAX: usize = 63;
const VALUE_BYTES_MAX: usize = 255;

fn habit(tokens: &[Token]) -> Option<Request> {
    HABITS.iter().find_map(|habit| {
        let mut rest = tokens.iter();
        if !habit.phrase.split(' ').all(|word| rest.next().is_some_and(|token| token.is(word))) {
            return None;
        }
        let name = match (habit.tail, rest.as_slice()) {
            (Tail::Nothing, []) => "",
            (Tail::Modes, modes) if modes.iter().all(Token::may_be_mode) => "",
            (Tail::Name, [Token::Word(name)]) => name,
            _ => return None,
        };
        Some(Request::Habit(habit, name.to_owned()))
    })
}

#[derive(Debug, Eq, PartialEq)]
enum Token {
    /// Bare, or in double quotes, which are taken off.
    Word(String),
    /// In single quotes, which are taken off.
    Text(String),
    Equals,
    Comma,
    Star,
    Semicolon,
}

impl Token {
    fn is(&self, wanted: &str) -> bool {
        match self {
            Self::Word(word) => word.eq_ignore_ascii_case(wanted),
            Self::Star => wanted == "*",
            _ => false,
        }
    }

    fn means_to(&self) -> bool {
        *self == Self::Equals || self.is("TO")
    }

    fn may_be_mode(&self) -> bool {
        matches!(self, Self::Word(_) | Self::Comma)
    }
}

/// More than the longest thing a driver says about its transaction.
const TOKENS_MAX: usize = 24;

/// `None` if something in it is no token, or there are too many.
fn lex(said: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = skip_blanks(said)?;
    while let Some(first) = rest.chars().next() {
        if tokens.len() == TOKENS_MAX {
            return None;
        }
        let (token, after) = match first {
            '"' => quoted(rest, '"').map(|(word, after)| (Token::Word(word), after))?,
            '\'' => quoted(rest, '\'').map(|(text, after)| (Token::Text(text), after))?,
            '=' => (Token::Equals, rest.get(1..)?),
            ',' => (Token::Comma, rest.get(1..)?),
            '*' => (Token::Star, rest.get(1..)?),
            ';' => (Token::Semicolon, rest.get(1..)?),
            _ => {
                let end = rest.find(|c| !is_of_word(c)).unwrap_or(rest.len());
                let (word, after) = rest.split_at_checked(end)?;
                if word.is_empty() {
                    return None;
                }
                (Token::Word(word.to_owned()), after)
            }
        };
        tokens.push(token);
        rest = skip_blanks(after)?;
    }
    Some(tokens)
}

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// What stands between the `quote` at the front and the next one that is not doubled.
fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut inside = String::new();
    let mut rest = text.strip_prefix(quote)?;
    loop {
        let (part, after) = rest.split_once(quote)?;
        inside.push_str(part);
        match after.strip_prefix(quote) {
            Some(more) => {
                inside.push(quote);
                rest = more;
            }
            None => return Some((inside, after)),
        }
    }
}

/// Past white space and comments. `None` if a comment does not end.
fn skip_blanks(text: &str) -> Option<&str> {
    let mut rest = text.trim_start();
    loop {
        rest = if let Some(comment) = rest.strip_prefix("--") {
            comment.split_once('\n').map_or("", |(_, after)| after)
        } else if let Some(comment) = rest.strip_prefix("/*") {
            after_comment(comment)?
        } else {
            return Some(rest);
        }
        .trim_start();
    }
}

/// Comments nest, in SQL.
fn after_comment(comment: &str) -> Option<&str> {
    let mut depth = 1usize;
    let mut at = 0;
    while let Some(two) = comment.as_bytes().get(at..at + 2) {
        match two {
            b"/*" => depth += 1,
            b"*/" => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return comment.get(at..);
        }
    }
    None
}
