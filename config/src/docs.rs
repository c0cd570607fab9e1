//! `docs/settings.md` and the manual page of the ini, printed from the tables.

use std::fmt::Write;

use crate::pairs::Key;
use crate::{Effect, Reloadable, TABLE, database, peer, user};

/// The page.
#[must_use]
pub fn settings_page() -> String {
    let mut page = INTRODUCTION.to_owned();
    page.push_str(
        "| setting | value | default | changes | what it does |\n|---|---|---|---|---|\n",
    );
    for row in TABLE {
        let changes = match row.reloadable {
            Reloadable::Yes => "reload",
            Reloadable::No => "restart",
        };
        let effect = match row.effect {
            Effect::Now => String::new(),
            Effect::NotYet(why) => format!(" **No effect yet:** {why}."),
            Effect::Never(why) => format!(" **No meaning here:** {why}."),
        };
        let default = match row.default {
            None => "unset".to_owned(),
            Some("") => "empty".to_owned(),
            Some(text) => format!("`{text}`"),
        };
        line(
            &mut page,
            &[&code(row.name), &row.expects(), &default, changes, &(row.doc.to_owned() + &effect)],
        );
    }
    section(&mut page, DATABASES, database::KEYS);
    section(&mut page, USERS, user::KEYS);
    section(&mut page, PEERS, peer::KEYS);
    page
}

/// The manual page, howdah(5).
#[must_use]
pub fn settings_manual() -> String {
    let mut page = MANUAL.to_owned();
    page.push_str(".SH [pgbouncer]\n");
    for row in TABLE {
        let effect = match row.effect {
            Effect::Now => String::new(),
            Effect::NotYet(why) => format!(" No effect yet: {why}."),
            Effect::Never(why) => format!(" No meaning here: {why}."),
        };
        let restart = match row.reloadable {
            Reloadable::Yes => "",
            Reloadable::No => " Changed by a restart only.",
        };
        let default = match row.default {
            None => "unset".to_owned(),
            Some("") => "empty".to_owned(),
            Some(text) => text.to_owned(),
        };
        let said = format!("{}{effect}{restart} Default: {default}.", row.doc);
        entry(&mut page, row.name, &said);
    }
    manual_section(&mut page, "[databases]", database::KEYS);
    manual_section(&mut page, "[users]", user::KEYS);
    manual_section(&mut page, "[peers]", peer::KEYS);
    page.push_str(".SH SEE ALSO\n.BR howdah (1)\n");
    page
}

fn manual_section<T>(page: &mut String, title: &str, keys: &[Key<T>]) {
    let _ = writeln!(page, ".SH {title}");
    for key in keys {
        entry(page, key.name, &format!("{} Default: {}.", key.doc, key.default));
    }
}

/// What stands at the beginning of a line, and a backslash anywhere, would be a command of roff's.
fn entry(page: &mut String, name: &str, said: &str) {
    let plain = |text: &str| text.replace('`', "").replace('\\', "\\(rs").replace('-', "\\-");
    let _ = writeln!(page, ".TP\n.B {}\n\\&{}", plain(name), plain(said));
}

const MANUAL: &str = "\
.TH HOWDAH 5 \"\" Howdah Howdah
.SH NAME
howdah.ini, pgbouncer.ini \\- configuration of the connection pooler howdah
.SH DESCRIPTION
Sections of lines of the form
.BR \"key = value\" .
What the lines look like is told in /usr/share/doc/howdah/docs/settings.md.
.B howdah check FILE
lists all that is wrong with a file.
";

fn section<T>(page: &mut String, introduction: &str, keys: &[Key<T>]) {
    page.push_str(introduction);
    page.push_str("| key | default | what it does |\n|---|---|---|\n");
    for key in keys {
        line(page, &[&code(key.name), key.default, key.doc]);
    }
}

fn line(page: &mut String, cells: &[&str]) {
    for cell in cells {
        let _ = write!(page, "| {} ", cell.replace('|', "\\|"));
    }
    page.push_str("|\n");
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

const INTRODUCTION: &str = "\
# Settings

This page is printed from the tables in `config/src`; do not edit it. `UPDATE_DOCS=1 cargo test -p howdah-config` prints it anew.

## The file

- A line is empty, a comment (`#` or `;` first), `[section]`, `key = value`, or `%include FILE`. Names of included files are
  relative to the working directory; includes nest ten deep, and an included file takes over the section it is included in.
- The section `[pgbouncer]` must be there. Sections may repeat and come in any order. Where a key is given twice the last
  one counts.
- A key of other characters than `A-Z a-z 0-9 _ . * -` is quoted, `'my db'` or `\"my db\"`.
- Whole numbers may be hexadecimal (`0x10`) or octal (`0777`). 0 and 1 are the only words for off and on. Times are seconds,
  with a fraction if need be (`1.5`), and without a unit. Words may be in upper or lower case.
- **Comments behind a value.** PgBouncer takes `# …` and `; …` behind a value for a part of it, and then refuses to start, or
  quietly ignores the parameter you named. Here they are cut off, with a warning, where a `#` or `;` follows a blank; in a query
  only ` # ` outside of quotes is (`;` separates statements), and in `login_notify_message` nothing is.
- Whatever is wrong in the ini stops the start, and leaves everything as it was at a RELOAD; about the files it names see [running.md](running.md#where-a-reload-finds-errors). `howdah check FILE` lists it all at once.
- At a RELOAD every setting first goes back to its default, so a line that is taken out counts as well. Settings that change
  with a restart only are left as they are, at a RELOAD and a SET alike, without an error.

## [pgbouncer]

";

const DATABASES: &str = "
## [databases]

A line is `name = key=value key=value …`. Values with blanks are quoted, `'…'`, with `''` for a quote; empty ones are not
allowed. `*` is the template for all databases that are not listed. The name `pgbouncer` is the console's. Of a number the
digits at the beginning count; what follows them is dropped, with a warning. Times are whole seconds.

A new dbname, host, port, user, connect_query, auth_dbname, auth_query or load_balance_hosts makes a RELOAD replace the
database's servers. When a database is taken out its clients are disconnected.

";

const USERS: &str = "
## [users]

A line is `name = key=value …`, as in `[databases]`. What it says goes before what the database says, and that before the
setting.

";

const PEERS: &str = "
## [peers]

A line is `number = key=value …`. Cancel requests for another process are sent on to it, where `peer_id` is set. One process uses all cores and needs no peers: see [several-processes.md](several-processes.md).

";

#[cfg(test)]
mod tests {
    use std::env;
    use std::fs;

    use super::*;

    #[test]
    fn the_page_is_what_the_tables_print() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/settings.md");
        if env::var_os("UPDATE_DOCS").is_some() {
            fs::write(path, settings_page()).expect("docs/ can be written");
        }
        let page = fs::read_to_string(path).unwrap_or_default();
        assert!(page == settings_page(), "docs/settings.md is old: run with UPDATE_DOCS=1");
    }

    #[test]
    fn the_manual_is_what_the_tables_print() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/man/howdah.5");
        if env::var_os("UPDATE_DOCS").is_some() {
            fs::write(path, settings_manual()).expect("packaging/ can be written");
        }
        let page = fs::read_to_string(path).unwrap_or_default();
        assert!(page == settings_manual(), "{path} is old: run with UPDATE_DOCS=1");
    }
}
