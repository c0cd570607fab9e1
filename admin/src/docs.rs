//! The console's manual, printed from the tables.

use std::fmt::Write;

use crate::command::VERBS;
use crate::courtesy::{FAKED, HABITS, Tail};
use crate::views::SHEETS;
use crate::{CONSOLE, Role, VERSION_COMPAT};

/// `docs/console.md`.
#[must_use]
pub fn manual() -> String {
    let mut page = INTRODUCTION.replace("{console}", CONSOLE).replace("{version}", VERSION_COMPAT);
    // Writing to a string does not fail.
    let _ = commands(&mut page).and_then(|()| views(&mut page)).and_then(|()| habits(&mut page));
    page
}

const INTRODUCTION: &str = "\
<!-- Printed from the tables in admin/src. Do not edit: UPDATE_DOCS=1 cargo test -p howdah-admin -->

# The console

The console is the database `{console}`. Everything it answers is shaped as {version} does it, so
that tools made for PgBouncer work unchanged. What is there besides: the columns `…client_login_count`, which are of a version behind that;
`pin_reasons` and `pinned_since`, at the end of SHOW CLIENTS and SHOW SERVERS; SHOW LISTENERS, PINS, PIN_TOTALS and SESSION_REPORT.

| who | may |
|---|---|
| a user in `admin_users` | everything |
| the user `{console}` on the unix socket, with the uid of the process | everything, without a password |
| a user in `stats_users` | what the tables below mark with *stats* |
| with `auth_type = any`, everybody else | the same |

One command at a time: `WORD [WORD]`, `SET key = value` or `SET key TO value`, with a `;` at the end if
you like. Case does not matter. Names that are no plain words go into double quotes (`PAUSE \"my-db\"`),
such values into single ones. SQL comments are passed over.

Both the simple and the extended query protocol work. There are no parameters (`$1`).
";

fn commands(page: &mut String) -> std::fmt::Result {
    writeln!(page, "\n## Commands\n\n| command | who | what it does |\n|---|---|---|")?;
    for verb in &VERBS {
        let form = verb.takes.form().replace('|', "\\|");
        let about = verb.about;
        writeln!(page, "| `{}{form}` | {} | {about} |", verb.word, who(verb.who))?;
    }
    writeln!(
        page,
        "\nWhere `db` is optional, none means all databases; but RESUME without a name ends only what was said without one."
    )
}

fn views(page: &mut String) -> std::fmt::Result {
    writeln!(page, "\n## Views")?;
    for sheet in &SHEETS {
        let admins = if sheet.who == Role::Admin { " Admins only." } else { "" };
        writeln!(page, "\n### SHOW {}\n\n{}{admins}", sheet.word, sheet.about)?;
        if !sheet.columns.is_empty() {
            writeln!(page, "\n| column | type |\n|---|---|")?;
        }
        for column in sheet.columns {
            writeln!(page, "| {} | {} |", column.name, column.kind.name())?;
        }
    }
    Ok(())
}

fn habits(page: &mut String) -> std::fmt::Result {
    writeln!(page, "\n## What drivers say out of habit\n")?;
    writeln!(page, "These settings can be shown, and setting them changes nothing:\n")?;
    writeln!(page, "| setting | shows |\n|---|---|")?;
    for faked in &FAKED {
        writeln!(page, "| {} | `{}` |", faked.name(), faked.value)?;
    }
    writeln!(page, "\nThese are answered as PostgreSQL would, and do nothing to the pooler:\n")?;
    writeln!(page, "| statement | answer |\n|---|---|")?;
    for habit in &HABITS {
        let tail = match habit.tail {
            Tail::Nothing => "",
            Tail::Modes => " …",
            Tail::Name => " name",
        };
        writeln!(page, "| `{}{tail}` | {} |", habit.phrase, habit.tag)?;
    }
    Ok(())
}

fn who(role: Role) -> &'static str {
    match role {
        Role::Nobody => "everybody",
        Role::Stats => "stats",
        Role::Admin => "admin",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_on_disk_is_what_the_tables_print() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/console.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, manual()).expect("the manual can be written");
        }
        let on_disk = std::fs::read_to_string(path).expect("the manual is there");
        assert!(
            on_disk == manual(),
            "docs/console.md is old: UPDATE_DOCS=1 cargo test -p howdah-admin"
        );
    }
}
