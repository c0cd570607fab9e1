//! What a client is told of its parameters: at login, and when they go back to what it asked for there.

use harness::postgres::PASSWORD;
use harness::{Login, Reply, World};

/// All that is said of parameters, in the order of their names: PostgreSQL's own differs from version to version.
fn told(reply: &Reply) -> Vec<(String, String)> {
    let mut told: Vec<_> = reply.of(b'S').map(|message| message.parameter()).collect();
    told.sort();
    told
}

/// The same login, at the server itself.
fn directly(world: &World) -> Login {
    Login::new(world.postgres.address(), "app", PASSWORD, &world.db)
}

/// However a client spells what it asks for: it hears of it as PostgreSQL spells it.
#[test]
fn what_is_asked_for_at_login_is_told_as_postgresql_spells_it() {
    howdah_only!("there it is said back as it came");
    let world = World::pool(2);
    let asked: [&[(&str, &str)]; 9] = [
        &[("DateStyle", "iso")],
        &[("datestyle", "german"), ("timezone", "+3")],
        &[("client_encoding", "latin1"), ("TimeZone", "europe/berlin")],
        &[("client_encoding", "'utf-8'"), ("TIMEZONE", "utc")],
        &[("standard_conforming_strings", "OFF"), ("IntervalStyle", "ISO_8601")],
        &[("options", "-c datestyle=dmy -c timezone=asia/tokyo")],
        &[("default_transaction_read_only", "1"), ("extra_float_digits", "3")],
        &[(
            "application_name",
            "a name that is longer than what is kept of any name by PostgreSQL",
        )],
        &[("DateStyle", "SQL, DMY"), ("search_path", "a, b")],
    ];
    for parameters in asked.into_iter().cycle().take(2 * asked.len()) {
        let with = |login: Login| {
            parameters
                .iter()
                .fold(login, |login, (name, value)| login.parameter(name, value))
                .enter()
        };
        let (direct, ours) = (with(directly(&world)).welcome, with(world.login()).welcome);
        assert_eq!(told(&ours), told(&direct), "{parameters:?}");
        let notices = |reply: &Reply| -> Vec<String> {
            reply.of(b'N').map(|notice| notice.fields().text().to_owned()).collect()
        };
        assert_eq!(notices(&ours), notices(&direct), "{parameters:?}");
    }
}

/// What DateStyle leaves out is as the server has it by itself, and not as another client has left it.
#[test]
fn half_a_date_style_is_not_completed_by_others() {
    howdah_only!("there it is");
    let world = World::pool(1);
    for name in ["iso", "dmy"] {
        world.login().parameter("DateStyle", "SQL, YMD").enter().run("SELECT 1");
        let [direct, ours] = [directly(&world), world.login()]
            .map(|login| login.parameter("DateStyle", name).enter().value("SHOW DateStyle"));
        assert_eq!(ours, direct, "{name}");
    }
}

/// As PostgreSQL does it, and not by the death of a server at the client's first request.
#[test]
fn what_no_server_takes_is_refused_at_login() {
    howdah_only!("there it is let in");
    let world = World::pool(1);
    for (name, value) in
        [("TimeZone", "nowhere"), ("client_encoding", "klingon"), ("DateStyle", "mars")]
    {
        let refused = |login: Login| {
            let refused = login.parameter(name, value).attempt().err().expect("refused");
            let error = refused.error();
            (error.code().to_owned(), error.text().to_owned())
        };
        assert_eq!(refused(world.login()), refused(directly(&world)));
    }
    assert_eq!(world.client().value("SELECT 1"), "1");
}

/// A RESET leads back to what was asked for at login, and that is what the client hears.
#[test]
fn what_goes_back_is_told_as_it_is_then() {
    howdah_only!("there a RESET leads to the server's own");
    let world = World::pool(2);
    let stories: [&[&str]; 7] = [
        &["RESET ALL", "SHOW TimeZone", "SHOW DateStyle"],
        &["SET TimeZone = 'Asia/Tokyo'", "RESET TimeZone", "SHOW TimeZone"],
        &["DISCARD ALL", "SHOW client_encoding", "SHOW application_name"],
        &["SET statement_timeout = 9000", "SET DateStyle = ISO", "RESET ALL", "SHOW DateStyle"],
        &["SET TimeZone TO DEFAULT; RESET application_name", "SELECT 1", "SHOW application_name"],
        &["SET TimeZone = 'Asia/Tokyo'", "BEGIN", "COMMIT", "SET TIME ZONE LOCAL", "SHOW TimeZone"],
        &[
            "SELECT pg_advisory_lock_shared(1)",
            "RESET ALL",
            "SELECT pg_advisory_unlock_all()",
            "SHOW TimeZone",
        ],
    ];
    for story in stories {
        let [mut direct, mut ours] = [directly(&world), world.login()].map(|login| {
            let login =
                login.parameter("TimeZone", "Europe/Berlin").parameter("DateStyle", "German");
            login.parameter("client_encoding", "LATIN1").parameter("application_name", "us").enter()
        });
        let mut other = world.client();
        for sql in story {
            let (theirs, own) = (direct.run(sql), ours.run(sql));
            assert_eq!(own.rows(), theirs.rows(), "{sql} of {story:?}");
            assert_eq!(told(&own), told(&theirs), "{sql} of {story:?}");
            other.run("SELECT 1");
        }
    }
}

/// Where that cannot be known at once, the client hears it before its next answer.
#[test]
fn what_has_gone_back_behind_others_is_told_later() {
    howdah_only!("there a RESET leads to the server's own");
    let world = World::pool(1);
    let mut client = world.login().parameter("TimeZone", "Europe/Berlin").enter();
    let mut zone = "Europe/Berlin".to_owned();
    let mut run = |sql: &str| {
        let reply = client.run(sql);
        zone = told(&reply).pop().map_or_else(|| zone.clone(), |(_, value)| value);
        zone.clone()
    };
    run("BEGIN");
    run("RESET ALL");
    run("COMMIT");
    assert_eq!(run("SELECT 1"), "Europe/Berlin");
    run("SET TimeZone = 'Asia/Tokyo'; DO 'BEGIN RESET TimeZone; END'");
    assert_eq!(run("SHOW TimeZone"), "Europe/Berlin");
}
