//! One statement's node, and what it comes to.

use std::ops::Range;

use pg_query::NodeEnum;
use pg_query::protobuf::{
    self, DiscardMode, ObjectType, TransactionStmtKind, VariableSetKind, a_const,
};

use crate::act::{
    Act, CopyWay, Discarded, Item, Mode, Object, Setting, Temporary, Transaction, Value,
    is_temporary_schema,
};
use crate::catalog;
use crate::mentions::Mentions;
use crate::overloadable::Overloadable;
use crate::reading::{Signal, Statement, Touch, tokens};
use crate::states::States;

/// `DECLARE … WITH HOLD`, as PostgreSQL's parser says it: CURSOR_OPT_HOLD.
const HOLD: i32 = 0x20;

/// ON COMMIT DROP: ONCOMMIT_DROP.
const ON_COMMIT_DROP: i32 = protobuf::OnCommitAction::OncommitDrop as i32;

/// What asyncpg said on giving a connection back, for years: UNLISTEN where there is something to unlisten.
const KNOWN_BLOCK: &str = "BEGIN PERFORM * FROM pg_listening_channels() LIMIT 1; \
                           IF FOUND THEN UNLISTEN *; END IF; END;";

/// Reads one statement; `range` is where it is in the text.
pub(crate) fn read(node: Option<&NodeEnum>, text: &str, range: Range<usize>) -> Statement {
    let Some(node) = node else { return Statement::unknown() };
    match node {
        NodeEnum::SelectStmt(_)
        | NodeEnum::InsertStmt(_)
        | NodeEnum::UpdateStmt(_)
        | NodeEnum::DeleteStmt(_)
        | NodeEnum::MergeStmt(_) => query(node),
        NodeEnum::TransactionStmt(stmt) => transaction(stmt),
        NodeEnum::VariableSetStmt(stmt) => set(stmt),
        NodeEnum::VariableShowStmt(stmt) => does(Act::Show(stmt.name.to_ascii_lowercase())),
        NodeEnum::ConstraintsSetStmt(_) => does(Act::SetConstraints).at_least(Touch::Ordinary),
        NodeEnum::DiscardStmt(stmt) => discard(stmt.target()),
        NodeEnum::PrepareStmt(stmt) => prepare(stmt, text, range),
        NodeEnum::ExecuteStmt(stmt) => execute(stmt),
        NodeEnum::DeallocateStmt(stmt) => Statement {
            ends: States::STATEMENTS,
            ..does(if stmt.isall { Act::DeallocateAll } else { Act::Deallocate(stmt.name.clone()) })
        },
        NodeEnum::DeclareCursorStmt(stmt) => declare(stmt, text),
        NodeEnum::FetchStmt(stmt) => {
            Statement { reads: States::CURSORS, ..does(Act::Fetch(stmt.portalname.clone())) }
        }
        NodeEnum::ClosePortalStmt(stmt) => Statement {
            ends: States::CURSORS,
            ..does(match stmt.portalname.as_str() {
                "" => Act::CloseAll,
                name => Act::Close(name.into()),
            })
        },
        NodeEnum::ListenStmt(stmt) => {
            Statement { makes: States::CHANNELS, ..does(Act::Listen(stmt.conditionname.clone())) }
        }
        NodeEnum::UnlistenStmt(stmt) => Statement {
            ends: States::CHANNELS,
            ..does(match stmt.conditionname.as_str() {
                "" => Act::UnlistenAll,
                name => Act::Unlisten(name.into()),
            })
        },
        NodeEnum::NotifyStmt(stmt) => {
            does(Act::Notify { channel: stmt.conditionname.clone(), payload: stmt.payload.clone() })
        }
        NodeEnum::LoadStmt(stmt) => Statement {
            makes: States::LIBRARIES,
            ..does(Act::Load(stmt.filename.clone())).at_least(Touch::Unknown)
        },
        NodeEnum::LockStmt(_) => does(Act::Lock),
        NodeEnum::DoStmt(stmt) => block(stmt),
        NodeEnum::CallStmt(stmt) => call(stmt),
        NodeEnum::CopyStmt(stmt) => copy(stmt, text),
        NodeEnum::ExplainStmt(stmt) => explain(stmt, text),
        NodeEnum::CreateTableAsStmt(stmt) => create_table_as(stmt, text),
        _ => define(node),
    }
}

fn does(act: Act) -> Statement {
    Statement { acts: vec![act], ..Statement::blank() }
}

fn inner(node: Option<&protobuf::Node>, text: &str) -> Statement {
    read(node.and_then(|node| node.node.as_ref()), text, 0..0)
}

/// SELECT and its kin: nothing but what they mention.
fn query(node: &NodeEnum) -> Statement {
    let mentions = Mentions::of(node);
    let mut statement = weigh(&mentions);
    if !matches!(node, NodeEnum::SelectStmt(_)) {
        statement = statement.at_least(Touch::Ordinary);
    }
    if let NodeEnum::SelectStmt(select) = node {
        statement.signals = signals(select);
    }
    if let NodeEnum::SelectStmt(select) = node
        && let Some(into) = leftmost_into(select)
    {
        statement = statement.at_least(Touch::Ordinary);
        statement.absorb(made(into.rel.as_ref(), into.on_commit));
    }
    statement
}

/// Columns that are what one of the functions returns that send signals; none behind a `*`.
fn signals(select: &protobuf::SelectStmt) -> Vec<(u16, Signal)> {
    let mut signals = Vec::new();
    for (column, target) in (0..).zip(&select.target_list) {
        let Some(NodeEnum::ResTarget(target)) = &target.node else { break };
        match target.val.as_ref().and_then(|value| value.node.as_ref()) {
            Some(NodeEnum::ColumnRef(reference)) if reference.fields.iter().any(is_star) => break,
            Some(NodeEnum::AIndirection(_)) => break,
            Some(NodeEnum::FuncCall(call)) => {
                let function = object(&call.funcname);
                let signal = match (function.schema.as_deref(), function.name.as_str()) {
                    (None | Some("pg_catalog"), "pg_cancel_backend") => Signal::Cancel,
                    (None | Some("pg_catalog"), "pg_terminate_backend") => Signal::Terminate,
                    _ => continue,
                };
                signals.push((column, signal));
            }
            _ => {}
        }
    }
    signals
}

fn is_star(node: &protobuf::Node) -> bool {
    matches!(node.node, Some(NodeEnum::AStar(_)))
}

/// SELECT INTO stands in the first SELECT of a UNION.
fn leftmost_into(mut select: &protobuf::SelectStmt) -> Option<&protobuf::IntoClause> {
    loop {
        if let Some(into) = &select.into_clause {
            return Some(into);
        }
        select = select.larg.as_deref()?;
    }
}

/// What functions, operators and relations come to, when they are used.
fn weigh(mentions: &Mentions) -> Statement {
    let mut statement = Statement { writes: mentions.writes, ..Statement::blank() };
    for object in &mentions.functions {
        let known = match object.schema.as_deref() {
            None | Some("pg_catalog") => catalog::builtin(&object.name),
            Some(_) => None,
        };
        let Some(known) = known else {
            if catalog::keeps(&object.name) {
                statement.makes |= States::BACKEND;
            }
            statement = calls(statement, &object.name, catalog::builtin(&object.name).is_some());
            continue;
        };
        statement.makes |= known.makes;
        statement.ends |= known.ends;
        statement.reads |= known.reads;
        statement = statement.at_least(known.touch);
        if object.schema.is_none() {
            statement.overloadable |= Overloadable::of(&object.name);
        }
        if !known.name.is_empty() {
            statement.acts.push(Act::Function(known.name));
        }
    }
    for operator in &mentions.operators {
        let ours = matches!(operator.schema.as_deref(), None | Some("pg_catalog"));
        let is_known = catalog::is_operator(&operator.name);
        if !ours || !is_known {
            statement = calls(statement, &operator.name, is_known);
        }
    }
    for relation in &mentions.relations {
        if mentions.writes && relation.name == "pg_settings" {
            // Its rule calls set_config().
            statement = statement.at_least(Touch::Unknown);
        }
        match catalog::relation(relation.schema.as_deref(), &relation.name) {
            Some(reads) => statement.reads |= reads,
            None => statement = statement.at_least(Touch::Ordinary),
        }
    }
    if mentions.computes {
        statement.overloadable |= Overloadable::ANYWHERE;
    }
    if mentions.temporary {
        statement.reads |= States::TEMPORARY;
    }
    statement
}

/// Something is called that is not built in. What has the name of something that is cannot be told from it later.
fn calls(mut statement: Statement, name: &str, is_ambiguous: bool) -> Statement {
    statement.calls.push(name.to_owned());
    statement.at_least(if is_ambiguous { Touch::Unknown } else { Touch::Calls })
}

fn transaction(stmt: &protobuf::TransactionStmt) -> Statement {
    let name = || stmt.savepoint_name.clone();
    let chain = stmt.chain;
    let act = match stmt.kind() {
        TransactionStmtKind::TransStmtBegin | TransactionStmtKind::TransStmtStart => {
            Transaction::Begin(modes(&stmt.options))
        }
        TransactionStmtKind::TransStmtCommit => Transaction::Commit { chain },
        TransactionStmtKind::TransStmtRollback => Transaction::Rollback { chain },
        TransactionStmtKind::TransStmtSavepoint => Transaction::Savepoint(name()),
        TransactionStmtKind::TransStmtRelease => Transaction::Release(name()),
        TransactionStmtKind::TransStmtRollbackTo => Transaction::RollbackTo(name()),
        TransactionStmtKind::TransStmtPrepare => Transaction::Prepare(stmt.gid.clone()),
        TransactionStmtKind::TransStmtCommitPrepared => {
            Transaction::CommitPrepared(stmt.gid.clone())
        }
        TransactionStmtKind::TransStmtRollbackPrepared => {
            Transaction::RollbackPrepared(stmt.gid.clone())
        }
        TransactionStmtKind::Undefined => return Statement::unknown(),
    };
    does(Act::Transaction(act))
}

/// ISOLATION LEVEL and the like: a list of options, each a constant.
fn modes(options: &[protobuf::Node]) -> Vec<Mode> {
    let mode = |node: &protobuf::Node| {
        let NodeEnum::DefElem(option) = node.node.as_ref()? else { return None };
        let argument = option.arg.as_deref()?.node.as_ref()?;
        let value = match item(argument)? {
            Item::Text(value) => value,
            // READ ONLY and DEFERRABLE are numbers here.
            Item::Number(value) => if value == "0" { "off" } else { "on" }.into(),
        };
        Some(Mode { name: option.defname.clone(), value })
    };
    options.iter().filter_map(mode).collect()
}

fn set(stmt: &protobuf::VariableSetStmt) -> Statement {
    let name = stmt.name.to_ascii_lowercase();
    let kind = match name.as_str() {
        "role" | "session_authorization" => States::ROLE,
        _ => States::SETTINGS,
    };
    let value = match stmt.kind() {
        VariableSetKind::VarSetValue => value(&stmt.args),
        VariableSetKind::VarSetDefault => Some(Value::Default),
        VariableSetKind::VarSetCurrent => Some(Value::Current),
        VariableSetKind::VarSetMulti => return set_several(stmt),
        VariableSetKind::VarReset => {
            return Statement { ends: kind, makes: kind, ..does(Act::Reset(name)) };
        }
        VariableSetKind::VarResetAll => {
            let makes = States::SETTINGS;
            return Statement { ends: makes, makes, ..does(Act::ResetAll) };
        }
        VariableSetKind::Undefined => None,
    };
    let Some(value) = value else { return Statement::unknown() };
    let ends = if value == Value::Default { kind } else { States::empty() };
    // What is set for this transaction only is gone by its end.
    let makes = if stmt.is_local { States::empty() } else { kind };
    Statement { makes, ends, ..does(Act::Set(Setting { name, value, local: stmt.is_local })) }
}

fn set_several(stmt: &protobuf::VariableSetStmt) -> Statement {
    match stmt.name.as_str() {
        "TRANSACTION" => does(Act::SetTransaction(modes(&stmt.args))),
        "SESSION CHARACTERISTICS" => {
            let act = Act::SetCharacteristics(modes(&stmt.args));
            Statement { makes: States::SETTINGS, ..does(act) }
        }
        "TRANSACTION SNAPSHOT" => does(Act::SetSnapshot),
        _ => Statement::unknown(),
    }
}

/// `None` when it is not as PostgreSQL's grammar makes it.
fn value(arguments: &[protobuf::Node]) -> Option<Value> {
    let mut items = Vec::new();
    for argument in arguments {
        let node = argument.node.as_ref()?;
        // SET TIME ZONE INTERVAL '1' HOUR is the one that is cast.
        if matches!(node, NodeEnum::TypeCast(_)) {
            return Some(Value::Interval);
        }
        items.push(item(node)?);
    }
    Some(Value::Items(items))
}

fn item(node: &NodeEnum) -> Option<Item> {
    match node {
        NodeEnum::AConst(constant) => Some(match constant.val.as_ref()? {
            a_const::Val::Ival(number) => Item::Number(number.ival.to_string()),
            a_const::Val::Fval(number) => Item::Number(number.fval.clone()),
            a_const::Val::Boolval(flag) => {
                Item::Text(if flag.boolval { "on" } else { "off" }.into())
            }
            a_const::Val::Sval(text) => Item::Text(text.sval.clone()),
            a_const::Val::Bsval(text) => Item::Text(text.bsval.clone()),
        }),
        NodeEnum::String(text) => Some(Item::Text(text.sval.clone())),
        NodeEnum::Integer(number) => Some(Item::Number(number.ival.to_string())),
        NodeEnum::Float(number) => Some(Item::Number(number.fval.clone())),
        _ => None,
    }
}

fn discard(mode: DiscardMode) -> Statement {
    let (what, ends) = match mode {
        DiscardMode::DiscardAll => (Discarded::All, States::DISCARDED),
        DiscardMode::DiscardPlans => (Discarded::Plans, States::empty()),
        DiscardMode::DiscardSequences => (Discarded::Sequences, States::SEQUENCES),
        DiscardMode::DiscardTemp => (Discarded::Temp, States::TEMPORARY),
        DiscardMode::Undefined => return Statement::unknown(),
    };
    Statement { ends, ..does(Act::Discard(what)) }
}

fn prepare(stmt: &protobuf::PrepareStmt, text: &str, range: Range<usize>) -> Statement {
    let body = after_as(text, range);
    let mut prepared = inner(stmt.query.as_deref(), text);
    prepared.range = body.clone().unwrap_or_default();
    let act = Act::Prepare { name: stmt.name.clone(), body, inner: Box::new(prepared) };
    Statement { makes: States::STATEMENTS, ..does(act) }
}

/// What follows the AS of PREPARE name (types) AS: the first one, since no type has such a word in it.
fn after_as(text: &str, range: Range<usize>) -> Option<Range<usize>> {
    let words = tokens(text.get(range.clone())?)?;
    let found = words.iter().find(|token| token.token == protobuf::Token::As as i32)?;
    let start = range.start + usize::try_from(found.end).ok()?;
    let blank = text.get(start..range.end)?;
    let start = start + blank.len() - blank.trim_start().len();
    Some(start..range.end)
}

fn execute(stmt: &protobuf::ExecuteStmt) -> Statement {
    let mut statement = weigh(&Mentions::of(&stmt.params));
    statement.acts.push(Act::Execute(stmt.name.clone()));
    statement.reads |= States::STATEMENTS;
    statement.at_least(Touch::Ordinary)
}

fn declare(stmt: &protobuf::DeclareCursorStmt, text: &str) -> Statement {
    let hold = stmt.options & HOLD != 0;
    let mut statement = does(Act::Declare { name: stmt.portalname.clone(), hold });
    if hold {
        statement.makes = States::CURSORS;
    }
    // It runs at FETCH or COMMIT, in this transaction at the latest.
    statement.absorb(inner(stmt.query.as_deref(), text));
    statement
}

/// DO. A block is code, and code is unknown, but for what drivers are known to send.
fn block(stmt: &protobuf::DoStmt) -> Statement {
    let unknown = does(Act::Do).at_least(Touch::Unknown);
    let [argument] = &stmt.args[..] else { return unknown };
    let Some(NodeEnum::DefElem(argument)) = &argument.node else { return unknown };
    let code = argument.arg.as_deref().and_then(|code| code.node.as_ref()).and_then(item);
    match code {
        Some(Item::Text(code)) if argument.defname == "as" => {
            let mut words = KNOWN_BLOCK.split_ascii_whitespace();
            if !code.split_ascii_whitespace().eq(words.by_ref()) {
                return unknown;
            }
            let channels = States::CHANNELS;
            Statement { ends: channels, reads: channels, ..does(Act::Do) }
        }
        _ => unknown,
    }
}

fn call(stmt: &protobuf::CallStmt) -> Statement {
    let mentions = Mentions::of(stmt);
    let name = stmt.funccall.as_ref().map(|call| object(&call.funcname)).unwrap_or_default();
    let mut statement = weigh(&mentions);
    statement.acts.push(Act::Call(name));
    statement.at_least(Touch::Unknown)
}

fn copy(stmt: &protobuf::CopyStmt, text: &str) -> Statement {
    let way = match (stmt.filename.is_empty(), stmt.is_from) {
        (false, _) => CopyWay::Server,
        (true, true) => CopyWay::FromClient,
        (true, false) => CopyWay::ToClient,
    };
    let mut statement = does(Act::Copy(way));
    if stmt.query.is_some() {
        statement.absorb(inner(stmt.query.as_deref(), text));
    } else {
        statement.absorb(weigh(&Mentions::of(stmt)));
    }
    statement.writes |= stmt.is_from;
    if stmt.is_from { statement.at_least(Touch::Ordinary) } else { statement }
}

fn explain(stmt: &protobuf::ExplainStmt, text: &str) -> Statement {
    let explained = inner(stmt.query.as_deref(), text);
    // EXECUTE needs the statement of that name to plan it, and that may be of any kind.
    let executes = explained.acts.iter().any(|act| matches!(act, Act::Execute(_)));
    if executes || analyzes(stmt) {
        return explained;
    }
    // It is planned, not run: of functions, those that claim to be immutable are called, which none of the built-in
    // ones that make state does.
    let reads = explained.reads & States::STATEMENTS;
    let touch = explained.touch;
    Statement { reads, overloadable: explained.overloadable, ..does(Act::Explain) }.at_least(touch)
}

fn analyzes(stmt: &protobuf::ExplainStmt) -> bool {
    let mut named = stmt.options.iter().filter_map(|option| match option.node.as_ref() {
        Some(NodeEnum::DefElem(option)) if option.defname == "analyze" => Some(option),
        _ => None,
    });
    // The last one counts. What is not plainly off is taken for on.
    named.next_back().is_some_and(|option| {
        let argument = option.arg.as_deref().and_then(|argument| argument.node.as_ref());
        let off = |word: &str| ["off", "false", "0"].contains(&word.to_ascii_lowercase().as_str());
        match argument.and_then(item) {
            Some(Item::Text(word) | Item::Number(word)) => !off(&word),
            None => !matches!(argument, Some(NodeEnum::Boolean(flag)) if !flag.boolval),
        }
    })
}

fn create_table_as(stmt: &protobuf::CreateTableAsStmt, text: &str) -> Statement {
    let mut statement = inner(stmt.query.as_deref(), text).at_least(Touch::Ordinary);
    let into = stmt.into.as_deref();
    let relation = into.and_then(|into| into.rel.as_ref());
    statement.absorb(made(relation, into.map_or(0, |into| into.on_commit)));
    statement
}

/// Something that becomes of CREATE or INTO.
fn made(relation: Option<&protobuf::RangeVar>, on_commit: i32) -> Statement {
    let Some(relation) = relation else { return Statement::unknown() };
    if relation.relpersistence != "t" && !is_temporary_schema(&relation.schemaname) {
        return does(Act::Define);
    }
    let schema = Some(relation.schemaname.clone()).filter(|schema| !schema.is_empty());
    let object = Object { schema, name: relation.relname.clone() };
    let on_commit_drop = on_commit == ON_COMMIT_DROP;
    let act = Act::CreateTemporary(Temporary { object, on_commit_drop });
    Statement { makes: States::TEMPORARY, ..does(act) }
}

/// Everything else: DDL and maintenance.
fn define(node: &NodeEnum) -> Statement {
    let statement = match node {
        NodeEnum::CreateStmt(stmt) => made(stmt.relation.as_ref(), stmt.oncommit),
        NodeEnum::ViewStmt(stmt) => made(stmt.view.as_ref(), 0),
        NodeEnum::CreateSeqStmt(stmt) => made(stmt.sequence.as_ref(), 0),
        NodeEnum::DropStmt(stmt) => drop(stmt),
        NodeEnum::DropOwnedStmt(_) => {
            Statement { ends: States::TEMPORARY, ..does(Act::Drop(Vec::new())) }
        }
        NodeEnum::AlterRoleSetStmt(_)
        | NodeEnum::AlterDatabaseSetStmt(_)
        | NodeEnum::AlterSystemStmt(_) => does(Act::AlterDefaults),
        NodeEnum::DropdbStmt(stmt) => does(Act::Databases(vec![stmt.dbname.clone()])),
        NodeEnum::CreatedbStmt(stmt) => {
            let template = option(&stmt.options, "template").unwrap_or("template1");
            does(Act::Databases(vec![stmt.dbname.clone(), template.to_owned()]))
        }
        NodeEnum::AlterDatabaseStmt(stmt) if option(&stmt.options, "tablespace").is_some() => {
            does(Act::Databases(vec![stmt.dbname.clone()]))
        }
        NodeEnum::RenameStmt(stmt) if stmt.rename_type() == ObjectType::ObjectDatabase => {
            does(Act::Databases(vec![stmt.subname.clone(), stmt.newname.clone()]))
        }
        // Their scripts and handlers are anybody's.
        NodeEnum::CreateExtensionStmt(_)
        | NodeEnum::AlterExtensionStmt(_)
        | NodeEnum::CreatePlangStmt(_)
        | NodeEnum::ImportForeignSchemaStmt(_)
        | NodeEnum::CreateSubscriptionStmt(_)
        | NodeEnum::AlterSubscriptionStmt(_)
        | NodeEnum::DropSubscriptionStmt(_)
        | NodeEnum::SecLabelStmt(_) => does(Act::Define).at_least(Touch::Unknown),
        // What they name is kept, and not called.
        NodeEnum::CreateFunctionStmt(_)
        | NodeEnum::CreateTrigStmt(_)
        | NodeEnum::CreatePolicyStmt(_)
        | NodeEnum::RuleStmt(_)
        | NodeEnum::CreateSchemaStmt(_)
        | NodeEnum::CreateDomainStmt(_) => does(Act::Define),
        node => {
            let act = if maintains(node) { Act::Maintain } else { Act::Define };
            let mut statement = does(act);
            statement.absorb(weigh(&Mentions::of(node)));
            statement
        }
    };
    let mut statement = statement.at_least(Touch::Ordinary);
    // CREATE FUNCTION pg_temp.f, CREATE TYPE pg_temp.t and so on.
    if Mentions::of(node).temporary && !matches!(node, NodeEnum::DropStmt(_)) {
        statement.makes |= States::TEMPORARY;
    }
    statement
}

/// Whether a statement leaves all names, columns and types as they are.
fn maintains(node: &NodeEnum) -> bool {
    matches!(
        node,
        NodeEnum::TruncateStmt(_)
            | NodeEnum::VacuumStmt(_)
            | NodeEnum::ReindexStmt(_)
            | NodeEnum::ClusterStmt(_)
            | NodeEnum::RefreshMatViewStmt(_)
            | NodeEnum::CommentStmt(_)
            | NodeEnum::GrantStmt(_)
            | NodeEnum::GrantRoleStmt(_)
            | NodeEnum::CheckPointStmt(_)
    )
}

fn drop(stmt: &protobuf::DropStmt) -> Statement {
    let objects = stmt.objects.iter().map(|node| match node.node.as_ref() {
        Some(NodeEnum::List(list)) => object(&list.items),
        Some(NodeEnum::ObjectWithArgs(named)) => object(&named.objname),
        Some(NodeEnum::TypeName(named)) => object(&named.names),
        _ => object(std::slice::from_ref(node)),
    });
    let act = Act::Drop(objects.collect());
    // What never has a place in a schema is never temporary, but may take what is along with it.
    let ends = match stmt.remove_type() {
        ObjectType::ObjectPublication | ObjectType::ObjectForeignServer => States::empty(),
        _ => States::TEMPORARY,
    };
    Statement { ends, ..does(act) }
}

fn object(parts: &[protobuf::Node]) -> Object {
    let part = |node: &protobuf::Node| match node.node.as_ref() {
        Some(NodeEnum::String(text)) => Some(text.sval.clone()),
        _ => None,
    };
    Object::of(&parts.iter().filter_map(part).collect::<Vec<_>>())
}

/// The value of an option by name: a word or a string. `Some("")` for one that is neither.
fn option<'a>(options: &'a [protobuf::Node], name: &str) -> Option<&'a str> {
    options.iter().find_map(|node| match node.node.as_ref() {
        Some(NodeEnum::DefElem(option)) if option.defname == name => {
            match option.arg.as_ref()?.node.as_ref()? {
                NodeEnum::String(text) => Some(text.sval.as_str()),
                _ => Some(""),
            }
        }
        _ => None,
    })
}
