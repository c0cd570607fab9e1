//! Rules of auth_hba_file and maps of auth_ident_file: who is asked how, and who is not let in at all.

use std::net::TcpListener;
use std::path::PathBuf;

use harness::login::Refused;
use harness::postgres::PASSWORD;
use harness::{Howdah, Login, Postgres, Setup, World, eventually, place};

/// A pooler with these rules and maps, in front of the database `shop`.
struct Lawful {
    world: World,
    folder: PathBuf,
}

impl Lawful {
    fn new(rules: &str, maps: &str) -> Self {
        Self::with(rules, maps, |setup| setup)
    }

    fn with(rules: &str, maps: &str, change: impl FnOnce(Setup) -> Setup) -> Self {
        let folder = place::folder("law");
        place::write(&folder.join("hba"), rules);
        place::write(&folder.join("ident"), maps);
        let world = World::with(2, |setup| {
            change(
                setup
                    .set("auth_type", "hba")
                    .set("auth_hba_file", folder.join("hba").display())
                    .set("auth_ident_file", folder.join("ident").display())
                    .database_also("shop", &format!("user=app password={PASSWORD}")),
            )
        });
        Self { world, folder }
    }

    fn rewrite(&self, rules: &str) {
        place::write(&self.folder.join("hba"), rules);
    }

    fn tcp(&self, user: &str, password: &str) -> Login {
        self.world.howdah.login(user, password, "shop")
    }

    fn unix(&self, user: &str, password: &str) -> Login {
        Login::new(self.world.howdah.socket(), user, password, "shop")
    }
}

/// How a login went: the codes of the questions that were asked, and the error that ended it.
fn course(login: &Login) -> (Vec<i32>, Option<String>) {
    let (heard, error) = match login.attempt() {
        Ok(client) => (client.welcome, None),
        Err(refused) => {
            let error = refused.error().text().to_owned();
            (refused.0, Some(error))
        }
    };
    let code = |body: &[u8]| i32::from_be_bytes(body[..4].try_into().expect("a code"));
    let asked =
        heard.0.iter().filter(|message| message.tag == b'R').map(|message| code(&message.body));
    (asked.filter(|code| matches!(code, 3 | 5 | 10)).collect(), error)
}

fn refused(login: &Login) -> String {
    course(login).1.expect("it is refused")
}

#[test]
fn the_first_rule_that_fits_decides() {
    let law = Lawful::new(
        "# who may come in, and how\n\
         local all app trust\n\
         local all all md5\n\
         host shop app 127.0.0.0/8 password\n\
         host shop \"app2\",/^app3 127.0.0.1 255.255.255.255 md5\n\
         host shop watcher all reject\n\
         hostssl shop repl all trust\n\
         host pgbouncer boss all scram-sha-256\n",
        "",
    );
    assert_eq!(course(&law.unix("app", "never asked")), (vec![], None));
    assert_eq!(course(&law.unix("app2", PASSWORD)), (vec![5], None));
    assert_eq!(course(&law.tcp("app", PASSWORD)), (vec![3], None));
    assert_eq!(course(&law.tcp("app2", PASSWORD)), (vec![5], None));
    assert_eq!(course(&law.tcp("app3", PASSWORD)), (vec![5], None));
    assert_eq!(course(&law.tcp("watcher", PASSWORD)), (vec![], Some("login rejected".into())));
    let nothing = "no authentication method is found";
    assert_eq!(course(&law.tcp("repl", PASSWORD)), (vec![], Some(nothing.into())));
    assert_eq!(course(&law.tcp("boss", PASSWORD)), (vec![], Some(nothing.into())));
    assert_eq!(course(&law.tcp("boss", PASSWORD).database("pgbouncer")), (vec![10], None));
    for login in [law.unix("app2", "x"), law.tcp("app", "x"), law.tcp("app2", "x")] {
        assert_eq!(refused(&login), "password authentication failed");
    }
    // Whoever shuts out those who guess counts these.
    assert_eq!(law.world.howdah.log().matches("login failed: db=shop user=app2").count(), 2);
}

#[test]
fn a_trusted_user_must_exist_and_an_unknown_one_is_told_nothing_else() {
    let law = Lawful::new("local all all trust\nhost all all all scram-sha-256\n", "");
    assert_eq!(refused(&law.unix("stranger", "x")), "\"trust\" authentication failed");
    let known = course(&law.tcp("app", "wrong"));
    assert_eq!(known, (vec![10], Some("SASL authentication failed".into())));
    assert_eq!(known, course(&law.tcp("stranger", "wrong")));
    assert_eq!(known, course(&law.tcp("app", "wrong").database("nowhere")));
}

/// Who logs in after a RELOAD goes by the new rules; who is in stays in. Rules that cannot be read
/// change nothing.
#[test]
fn rules_are_reread_by_reload() {
    let law = Lawful::new("local all all trust\nhost all all all trust\n", "");
    let mut inside = law.tcp("app", "").enter();
    let boss = || Login::new(law.world.howdah.socket(), "boss", PASSWORD, "pgbouncer").enter();
    law.rewrite("local all all trust\nhost all app all reject\n");
    assert_eq!(course(&law.tcp("app", "")).1, None, "not before the RELOAD");
    boss().run("RELOAD");
    assert_eq!(refused(&law.tcp("app", "")), "login rejected");
    assert_eq!(inside.value("SELECT 1"), "1");
    std::fs::remove_file(law.folder.join("hba")).expect("our own file");
    let reply = boss().query("RELOAD");
    assert!(reply.error().is_some(), "{reply:?}");
    assert_eq!(refused(&law.tcp("app", "")), "login rejected", "the old rules stay");
    assert!(law.world.howdah.log().contains("could not open auth_hba_file"));
    law.rewrite("local all all trust\nhost all all all trust\n");
    boss().run("RELOAD");
    assert_eq!(course(&law.tcp("app", "")).1, None);
}

/// F4: what a line would have kept out is not let in by a later one because of a mistake in it.
#[test]
fn f04_a_bad_line_rejects_whom_it_may_be_about() {
    let law = Lawful::new(
        "host shop app 127.0.0.1/32 rejekt\nhost shop ann ::1/129 md5\nhost all all all trust\n\
         local all all trust",
        "",
    );
    assert_eq!(refused(&law.tcp("app", PASSWORD)), "login rejected");
    assert_eq!(course(&law.tcp("app2", "")).1, None, "it is about nobody else");
    let log = law.world.howdah.log();
    for want in [
        "hba:1: invalid authentication method \"rejekt\"; whoever this line may be about is rejected",
        "hba:2: invalid CIDR mask in address \"::1/129\"",
        "rejected by a line that cannot be read",
    ] {
        assert!(log.contains(want), "{want} in {log}");
    }
}

#[test]
fn files_are_included_and_lists_read_from_files() {
    let folder = place::folder("more");
    place::write(&folder.join("names"), "app # one\napp2, app3\n");
    place::write(&folder.join("1.conf"), "host shop @names all \\\n trust\n");
    place::write(&folder.join("2.conf"), "host all all all reject\n");
    let rules =
        format!("local all all trust\ninclude_if_exists gone\ninclude_dir {}\n", folder.display());
    let law = Lawful::new(&rules, "");
    for user in ["app", "app2", "app3"] {
        assert_eq!(course(&law.tcp(user, "")).1, None, "{user}");
    }
    assert_eq!(refused(&law.tcp("watcher", "")), "login rejected");
}

/// The name of the account that tests run under.
fn account() -> String {
    let output = std::process::Command::new("id").arg("-un").output().expect("id");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn peers_are_who_the_kernel_says() {
    let account = account();
    let maps = format!("m {account} app\nm /^{}(.*)$ \\1app2\nm nobody-here app3\n", &account);
    let law = Lawful::with(
        &format!("local all {account} peer\nlocal all all peer map=m\nhost all all all trust\n"),
        &maps,
        |setup| setup.secret(&account, "unused"),
    );
    assert_eq!(course(&law.unix(&account, "")), (vec![], None), "its own name, without a map");
    assert_eq!(course(&law.unix("app", "")), (vec![], None));
    assert_eq!(course(&law.unix("app2", "")), (vec![], None));
    let no = (vec![], Some("unix socket login rejected".to_owned()));
    assert_eq!(course(&law.unix("app3", PASSWORD)), no);
    assert_eq!(course(&law.unix("stranger", "")), no, "as for one who is known and not mapped");
}

#[test]
fn a_host_is_known_by_its_name_if_the_name_knows_the_host() {
    // /etc/hosts says so on every machine that has one.
    let law = Lawful::new("host shop app localhost trust\nhost shop app2 .example.org trust\n", "");
    assert_eq!(course(&law.tcp("app", "")).1, None);
    assert_eq!(refused(&law.tcp("app2", "")), "no authentication method is found");
}

#[test]
fn replication_is_a_database_of_its_own() {
    let law = Lawful::new(
        "host all repl all reject\nhost replication repl all trust\nhost replication all all reject\n",
        "",
    );
    assert_eq!(refused(&law.tcp("repl", "")), "login rejected");
    let physical = law.tcp("repl", "").parameter("replication", "true");
    assert_ne!(course(&physical).1.as_deref(), Some("login rejected"), "all is not about it");
    let logical = law.tcp("repl", "").parameter("replication", "database");
    assert_eq!(refused(&logical), "login rejected", "that is a database like others");
    assert_eq!(refused(&law.tcp("app", "").parameter("replication", "true")), "login rejected");
}

/// The owner of the process gets at the console whatever the rules say: he could change them.
#[test]
fn the_owner_is_not_asked() {
    let law = Lawful::new("local all all reject\nhost all all all reject\n", "");
    let mine = Login::new(law.world.howdah.socket(), "pgbouncer", "", "pgbouncer");
    // The tests and the pooler are not of one user where the tests run as root.
    let Err(Refused(reply)) = mine.attempt() else { return };
    assert_eq!(reply.error().expect("an error").text(), "login rejected");
}

#[test]
fn without_rules_it_does_not_start() {
    for (file, want) in [
        ("", "auth_type = hba needs auth_hba_file"),
        ("/nowhere/hba", "could not open auth_hba_file: cannot read /nowhere/hba"),
    ] {
        let setup = Setup::new().set("auth_type", "hba").set("auth_hba_file", file);
        let (_, said) = setup.try_start().err().expect("it does not start");
        assert!(said.contains(want), "{said}");
    }
}

/// Nor does it listen before: a client would wait at a door that nobody opens.
#[test]
fn without_rules_it_does_not_even_listen() {
    let port = place::port();
    let _taken = TcpListener::bind(("127.0.0.1", port)).expect("a free port");
    let setup =
        Setup::new().port(port).set("auth_type", "hba").set("auth_hba_file", "/nowhere/hba");
    let (_, said) = setup.try_start().err().expect("it does not start");
    assert!(said.contains("could not open auth_hba_file"), "{said}");
}

/// Roles on the server, and users who are in them or not.
struct Company {
    postgres: &'static Postgres,
    db: String,
}

impl Company {
    /// ann is in staff through team, without inheriting; bob is in nothing; root is a superuser.
    fn new() -> Self {
        let postgres = Postgres::shared();
        let company = Self { postgres, db: postgres.database() };
        let names = ["staff", "team", "ann", "bob", "root", "asker"].map(|name| company.name(name));
        let [staff, team, ann, bob, root, asker] = &names;
        company.run(&format!(
            "CREATE ROLE {staff}; CREATE ROLE {team} IN ROLE {staff}; \
             CREATE ROLE {ann} LOGIN NOINHERIT PASSWORD '{PASSWORD}' IN ROLE {team}; \
             CREATE ROLE {bob} LOGIN PASSWORD '{PASSWORD}'; \
             CREATE ROLE {root} LOGIN SUPERUSER PASSWORD '{PASSWORD}'; \
             CREATE ROLE {asker} LOGIN PASSWORD '{PASSWORD}'"
        ));
        company
    }

    fn name(&self, name: &str) -> String {
        format!("{}_{name}", self.db)
    }

    fn run(&self, sql: &str) {
        self.postgres.superuser(&self.db).run(sql);
    }

    /// A pooler with these rules, in which `@` stands for the beginning of a role's name.
    fn start(&self, rules: &str, change: impl FnOnce(Setup) -> Setup) -> Howdah {
        let folder = place::folder("company");
        place::write(&folder.join("hba"), &rules.replace('@', &self.name("")));
        let mut setup = Setup::new()
            .set("auth_type", "hba")
            .set("auth_hba_file", folder.join("hba").display())
            .database("shop", &self.postgres.target(&self.db))
            .database(&self.name("staff"), &self.postgres.target(&self.db));
        for name in ["ann", "bob", "root", "asker"] {
            setup = setup.secret(&self.name(name), PASSWORD);
        }
        change(setup).start()
    }
}

/// As PostgreSQL has it: through other roles, inheriting or not; a superuser is in what it was put into; everybody is
/// in himself.
#[test]
fn members_of_a_role_are_asked_for_on_a_server() {
    let company = Company::new();
    let rules = "host all @asker all trust\nhost shop +@staff,+@bob all password\n\
         host samerole all all md5\nhost all all all reject";
    let howdah = company.start(rules, |setup| setup.set("auth_user", company.name("asker")));
    let course_of =
        |name: &str, database: &str| course(&howdah.login(&company.name(name), PASSWORD, database));
    let rejected = (vec![], Some("login rejected".to_owned()));
    assert_eq!(course_of("ann", "shop"), (vec![3], None));
    assert_eq!(course_of("bob", "shop"), (vec![3], None));
    assert_eq!(course_of("root", "shop"), rejected);
    assert_eq!(course_of("stranger", "shop"), rejected);
    let staff = company.name("staff");
    assert_eq!(course_of("ann", &staff).1, None);
    assert_eq!(course_of("bob", &staff), rejected);
    assert_eq!(
        course_of("ann", "nowhere"),
        rejected,
        "no sign of whether there is such a database"
    );
    // Whoever is put into the role is in it at once, and out of it when taken out.
    let (root, ann, team) = (company.name("root"), company.name("ann"), company.name("team"));
    company.run(&format!("GRANT {staff} TO {root}; REVOKE {team} FROM {ann}"));
    assert_eq!(course_of("root", "shop"), (vec![3], None));
    assert_eq!(course_of("ann", "shop"), rejected);
    // A storm of logins is spared most of the questions, and ends within a second.
    for _ in 0..50 {
        assert_eq!(course_of("root", "shop"), (vec![3], None));
    }
    company.run(&format!("REVOKE {staff} FROM {root}"));
    eventually("it is out", || course_of("root", "shop") == rejected);
}

/// Without auth_user, the forced user's servers are asked, or the user's own; where that cannot be, the line rejects
/// whom it may be about, and says so.
#[test]
fn without_auth_user_who_can_be_asked_is_asked() {
    let company = Company::new();
    let rules = "host shop +@staff all password\nhost forced +@staff all password\n\
         host all all all trust\nlocal all all trust";
    let target = company.postgres.target(&company.db);
    let forced = format!("{target} user={} password={PASSWORD}", company.name("asker"));
    let howdah = company.start(rules, |setup| {
        // A verifier opens nothing before its owner has come.
        setup
            .database("forced", &forced)
            .secret("sealed", "SCRAM-SHA-256$4096:c2FsdHNhbHRzYWx0c2FsdA==$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
    });
    let course_of = |name: &str, database: &str| course(&howdah.login(name, PASSWORD, database));
    let (ann, bob) = (company.name("ann"), company.name("bob"));
    for database in ["shop", "forced"] {
        assert_eq!(course_of(&ann, database), (vec![3], None), "{database}");
        assert_eq!(course_of(&bob, database), (vec![], None), "{database}");
    }
    let rejected = (vec![], Some("login rejected".to_owned()));
    assert_eq!(course_of("sealed", "shop"), rejected);
    assert!(howdah.log().contains("rejected by a line about members of a role, which nobody can"));
    assert_eq!(course_of("sealed", "forced"), (vec![], None), "whom it is not about");
}

/// A server that cannot tell lets nobody in, and a line above is not touched by it.
#[test]
fn who_cannot_be_asked_about_does_not_get_in() {
    let company = Company::new();
    let rules = "host all boss all trust\nhost all +@staff all trust\nhost all all all trust";
    let howdah = company.start(rules, |setup| {
        setup.set("auth_user", company.name("gone")).secret(&company.name("gone"), "x")
    });
    let ann = howdah.login(&company.name("ann"), PASSWORD, "shop");
    assert!(refused(&ann).contains("password authentication failed for user"));
    assert_eq!(course(&howdah.login("boss", "", "pgbouncer")), (vec![], None));
}
