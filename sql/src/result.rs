//! Whether a statement returns rows.

use pg_query::{NodeEnum, ParserOptions};

use crate::reading::{STACK_BYTES, may_be_read};

/// Whether `text` is one statement that surely returns none, or none at all.
#[must_use]
pub fn returns_nothing(text: &str) -> bool {
    if !may_be_read(text) {
        return false;
    }
    let reads = || {
        let Ok(parsed) = pg_query::parse(text, ParserOptions::DEFAULT) else { return false };
        let nodes = parsed.protobuf.stmts.iter().map(|raw| raw.stmt.as_ref()?.node.as_ref());
        nodes.map(|node| node.is_some_and(gives_none)).eq([true])
            || parsed.protobuf.stmts.is_empty()
    };
    stacker::maybe_grow(STACK_BYTES, 2 * STACK_BYTES, reads)
}

fn gives_none(node: &NodeEnum) -> bool {
    match node {
        NodeEnum::InsertStmt(insert) => insert.returning_clause.is_none(),
        NodeEnum::UpdateStmt(update) => update.returning_clause.is_none(),
        NodeEnum::DeleteStmt(delete) => delete.returning_clause.is_none(),
        NodeEnum::MergeStmt(merge) => merge.returning_clause.is_none(),
        NodeEnum::FetchStmt(fetch) => fetch.ismove,
        NodeEnum::SelectStmt(_)
        | NodeEnum::CallStmt(_)
        | NodeEnum::ExecuteStmt(_)
        | NodeEnum::ExplainStmt(_)
        | NodeEnum::VariableShowStmt(_) => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_statements_return_nothing() {
        for text in ["", "BEGIN", "SET a.b = 1", "insert into t values ($1)", "MOVE c -- FETCH"] {
            assert!(returns_nothing(text), "{text}");
        }
        let some = ["SELECT 1", "delete from t returning 1", "SHOW a", "FETCH c"];
        for text in some.into_iter().chain(["BEGIN; COMMIT", "no statement"]) {
            assert!(!returns_nothing(text), "{text}");
        }
    }
}
