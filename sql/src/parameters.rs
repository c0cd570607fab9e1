//! How many parameters a statement has.

use pg_query::protobuf::Token;

use crate::digest::range;
use crate::reading::may_be_read;

/// The highest number of a parameter that stands in `statement`; `None`: it cannot be read.
#[must_use]
pub fn parameters(statement: &str) -> Option<u16> {
    if !may_be_read(statement) {
        return None;
    }
    if !statement.contains('$') {
        return Some(0);
    }
    let mut most = 0;
    for token in pg_query::scan_tokens(statement).ok()? {
        if Token::try_from(token.token) == Ok(Token::Param) {
            let number = statement.get(range(&token)?)?.strip_prefix('$')?;
            most = most.max(number.parse().ok()?);
        }
    }
    Some(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_stand_in_no_constant() {
        assert_eq!(parameters("SELECT 1"), Some(0));
        assert_eq!(parameters("SELECT $2, '$7', \"$8\", $$ $9 $$, $1 /* $3 */ -- $4"), Some(2));
        assert_eq!(parameters("$70000"), None);
        assert_eq!(parameters("$1 '"), None);
    }
}
