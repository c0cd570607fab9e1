//! The first packet: protocol versions, parameters, encryption requests, and lies. Bug class B21.

use harness::postgres::PASSWORD;
use harness::say::{self, query};
use harness::{Heard, Raw, World, seconds};

/// Sends a first packet of this version and logs in.
fn with_version(world: &World, minor: u16, parameters: &[(&str, &str)]) -> Raw {
    let login = parameters
        .iter()
        .fold(world.login().minor(minor), |login, (name, value)| login.parameter(name, value));
    login.enter()
}

/// The versions and options that a NegotiateProtocolVersion names.
fn negotiated(client: &Raw) -> Option<(u32, Vec<String>)> {
    let mut all = client.welcome.of(b'v');
    let message = all.next()?;
    assert!(all.next().is_none(), "it was sent twice");
    let version = u32::from_be_bytes(message.body[..4].try_into().expect("a version"));
    let count = u32::from_be_bytes(message.body[4..8].try_into().expect("a count"));
    let options: Vec<_> =
        message.body[8..].split(|&byte| byte == 0).filter(|name| !name.is_empty()).collect();
    let options: Vec<_> =
        options.into_iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    assert_eq!(options.len(), usize::try_from(count).expect("few"));
    Some((version & 0xffff, options))
}

#[test]
fn b21_versions() {
    howdah_only!("3.2");
    let world = World::pool(1);
    assert_eq!(negotiated(&with_version(&world, 0, &[])), None);
    assert_eq!(negotiated(&with_version(&world, 2, &[])), None);
    for newer in [3, 4, 9999] {
        assert_eq!(negotiated(&with_version(&world, newer, &[])), Some((2, vec![])), "3.{newer}");
    }
    let mut client = with_version(&world, 9999, &[("_pq_.test_protocol_negotiation", "1")]);
    assert_eq!(negotiated(&client), Some((2, vec!["_pq_.test_protocol_negotiation".into()])));
    assert_eq!(client.value("SELECT 1"), "1");
    client = with_version(&world, 0, &[("_pq_.x", "1"), ("_pq_.y", "")]);
    assert_eq!(negotiated(&client), Some((0, vec!["_pq_.x".into(), "_pq_.y".into()])));
    assert_eq!(client.value("SELECT 1"), "1");
}

#[test]
fn b21_keys_are_as_long_as_the_version_allows() {
    howdah_only!("3.2");
    let world = World::pool(1);
    let length = |minor: u16| with_version(&world, minor, &[]).key.expect("a key").len();
    assert_eq!(length(0), 8);
    assert!(length(2) >= 8);
}

#[test]
fn b21_other_major_versions() {
    let mut world = World::pool(1);
    for version in [4 << 16, 1 << 16, 0, 7, -1] {
        let mut client = Raw::open(&world.howdah.address()).expect("it listens");
        client.send(&say::untagged(version, b"user\0app\0\0"));
        let reply = client.until_closed();
        assert_eq!(reply.count(b'Z'), 0);
        assert!(reply.count(b'E') <= 1);
    }
    let mut client = Raw::open(&world.howdah.address()).expect("it listens");
    client.send(&say::untagged(2 << 16, &[0; 288]));
    let error = client.fatal();
    assert_eq!(error.text(), "old V2 protocol not supported");
    world.howdah.must_live();
}

/// node-postgres does, when it is ended before it has connected; an error would come to nobody who waits for one.
#[test]
fn who_leaves_before_logging_in_is_told_nothing() {
    howdah_only!("a first packet that is a Terminate");
    let world = World::pool(1);
    let mut client = Raw::open(&world.howdah.address()).expect("it listens");
    client.send(b"X\0\0\0\x04");
    let reply = client.until_closed();
    assert_eq!(reply.tags(), "");
}

#[test]
fn encryption_is_declined_and_the_connection_goes_on() {
    let world = World::pool(1);
    for requests in [
        vec![say::ssl_request()],
        vec![say::gss_request()],
        vec![say::gss_request(), say::ssl_request()],
    ] {
        let mut client = Raw::open(&world.howdah.address()).expect("it listens");
        for request in requests {
            client.send(&request);
            assert_eq!(client.swallow(1, seconds(5.0)), b"N");
        }
        let login = world.login();
        client.send(&login.startup());
        login.answer(&mut client).expect("in");
        assert_eq!(client.value("SELECT 1"), "1");
    }
}

#[test]
fn nothing_may_follow_an_encryption_request_unasked() {
    howdah_only!("checked since 1.16.1, where TLS is on");
    let world = World::pool(1);
    let mut client = Raw::open(&world.howdah.address()).expect("it listens");
    client.send(&[say::ssl_request(), world.login().startup()].concat());
    let said = client.swallow(1000, seconds(1.0));
    let refused = said.is_empty() || said == b"N" || said.starts_with(b"E");
    assert!(refused && client.is_closed(), "{said:?}");
}

#[test]
fn encryption_is_asked_for_once() {
    howdah_only!("a guard against endless requests");
    let mut world = World::pool(1);
    let mut client = Raw::open(&world.howdah.address()).expect("it listens");
    for _ in 0..5 {
        client.send(&say::ssl_request());
        let _answer = client.swallow(1, seconds(1.0));
    }
    client.send(&world.login().startup());
    let _either = client.hear(seconds(1.0));
    world.howdah.must_live();
}

#[test]
fn known_parameters_are_taken() {
    let world = World::pool(1);
    let login =
        world.login().parameter("application_name", "till").parameter("client_encoding", "LATIN1");
    let login = login
        .parameter("DateStyle", "German")
        .parameter("timezone", "Asia/Tokyo")
        .parameter("standard_conforming_strings", "on");
    let mut client = login.enter();
    let mut other = world.client();
    for _ in 0..2 {
        assert_eq!(client.value("SHOW application_name"), "till");
        assert_eq!(client.value("SHOW client_encoding"), "LATIN1");
        assert_eq!(client.value("SHOW DateStyle"), "German, DMY");
        assert_eq!(client.value("SHOW TimeZone"), "Asia/Tokyo");
        assert_eq!(other.value("SHOW DateStyle"), "ISO, MDY");
        assert_eq!(other.value("SHOW TimeZone"), "UTC");
    }
    let told: Vec<_> = client.welcome.of(b'S').map(harness::Message::parameter).collect();
    assert!(told.contains(&("application_name".into(), "till".into())), "{told:?}");
}

/// As PostgreSQL does it, whatever way the client wrote it.
#[test]
fn an_encoding_is_reported_by_its_own_name() {
    howdah_only!("it repeats what the client said");
    let world = World::pool(1);
    let client = world.login().parameter("client_encoding", "utf-8").enter();
    let told: Vec<_> = client.welcome.of(b'S').map(harness::Message::parameter).collect();
    assert!(told.contains(&("client_encoding".into(), "UTF8".into())), "{told:?}");
}

#[test]
fn unknown_parameters_are_refused() {
    let world = World::with(1, |setup| setup.own("track_session_state", 0));
    for name in ["extra_float_digits", "search_path", "no_such_thing"] {
        let error = world.login().parameter(name, "1").attempt().err().expect("refused").error();
        assert_eq!((error.severity(), error.code()), ("FATAL", "08P01"));
        assert_eq!(error.text(), format!("unsupported startup parameter: {name}"));
    }
}

#[test]
fn ignored_parameters_are_dropped() {
    let world = World::with(1, |setup| {
        setup.set("ignore_startup_parameters", "extra_float_digits, search_path")
    });
    let mut client = world
        .login()
        .parameter("extra_float_digits", "3")
        .parameter("search_path", "nowhere")
        .enter();
    assert_eq!(client.value("SHOW search_path"), "\"$user\", public");
}

#[test]
fn options() {
    howdah_only!("of 1.20");
    let world = World::with(1, |setup| {
        setup.set("ignore_startup_parameters", "extra_float_digits").own("track_session_state", 0)
    });
    let with = |options: &str| world.login().parameter("options", options).attempt();
    for options in [
        "-c DateStyle=German",
        "-cDateStyle=German",
        "--DateStyle=German",
        "--datestyle=German -c timezone=UTC",
        "  -c  extra_float_digits=3   -c DateStyle=German ",
    ] {
        assert_eq!(
            with(options).expect("taken").value("SHOW DateStyle"),
            "German, DMY",
            "{options}"
        );
    }
    assert_eq!(
        with("-c application_name=two\\ words").expect("taken").value("SHOW application_name"),
        "two words"
    );
    let text = |options: &str| with(options).err().expect("refused").error().text().to_owned();
    assert_eq!(text("-c work_mem=1MB"), "unsupported startup parameter in options: work_mem");
    let shape = "unsupported options startup parameter: only '-c config=val' and '--config=val' are allowed";
    for bad in ["-d 5", "nonsense", "-c", "--noequals"] {
        assert_eq!(text(bad), shape, "{bad}");
    }
}

#[test]
fn options_may_be_ignored_altogether() {
    howdah_only!("of 1.20");
    let world = World::with(1, |setup| setup.set("ignore_startup_parameters", "options"));
    let mut client =
        world.login().parameter("options", "-c work_mem=1MB -c DateStyle=German").enter();
    assert_eq!(client.value("SHOW work_mem"), "4MB");
    assert_eq!(client.value("SHOW DateStyle"), "German, DMY");
}

#[test]
fn more_parameters_can_be_tracked() {
    howdah_only!("of 1.20");
    let world =
        World::with(1, |setup| setup.set("track_extra_parameters", "IntervalStyle, is_superuser"));
    let (mut first, mut second) =
        (world.login().parameter("IntervalStyle", "iso_8601").enter(), world.client());
    assert_eq!(first.value("SHOW IntervalStyle"), "iso_8601");
    assert_eq!(second.value("SHOW IntervalStyle"), "postgres");
    second.run("SET IntervalStyle = 'sql_standard'");
    assert_eq!(first.value("SHOW IntervalStyle"), "iso_8601");
    assert_eq!(second.value("SHOW IntervalStyle"), "sql_standard");
}

#[test]
fn values_that_would_break_out_of_a_set() {
    howdah_only!("the yardstick leaves a value on the server where a client has none");
    let mut world = World::pool(1);
    let mut other = world.client();
    for value in [
        "x'; SELECT pg_sleep(5); --",
        "it''s",
        "back\\slash",
        "\\'",
        "new\nline",
        "ünïcode",
        "",
        "'",
    ] {
        let mut client = world.login().parameter("application_name", value).enter();
        let shown = client.value("SHOW application_name");
        // Byte by byte, and since version 16 as an escape.
        let ascii = |strange: fn(u8) -> String| -> String {
            let plain = |byte| matches!(byte, b' '..=b'~');
            value
                .bytes()
                .map(|b| if plain(b) { char::from(b).into() } else { strange(b) })
                .collect()
        };
        let expected = [ascii(|_| "?".into()), ascii(|b| format!("\\x{b:02x}")), value.into()];
        assert!(expected.contains(&shown), "{value:?} became {shown:?}");
        assert_eq!(other.value("SHOW application_name"), "");
        assert_eq!(client.value("SHOW application_name"), shown, "stable from switch to switch");
    }
    world.howdah.must_live();
}

#[test]
fn a_startup_packet_in_every_wrong_shape() {
    let mut world = World::pool(1);
    let version = (3_i32 << 16).to_be_bytes();
    let bodies: [&[u8]; 9] = [
        b"",
        b"\0",
        b"user",
        b"user\0",
        b"user\0app",
        b"user\0app\0database",
        b"database\0shop\0\0",
        b"user\0\0\0",
        b"user\0app\0\0trailing",
    ];
    for body in bodies {
        let mut client = Raw::open(&world.howdah.address()).expect("it listens");
        let packet = [version.as_slice(), body].concat();
        let length = u32::try_from(packet.len() + 4).expect("short").to_be_bytes();
        client.send(&[length.as_slice(), &packet].concat());
        client.send(&query("SELECT 1"));
        client.half_close();
        assert_eq!(client.until_closed().count(b'Z'), 0, "{body:?}");
    }
    world.howdah.must_live();
}

#[test]
fn names_that_are_too_long() {
    let mut world = World::pool(1);
    for length in [63, 64, 128, 129, 1000, 9000, 100_000] {
        let name = "n".repeat(length);
        assert!(world.login().database(&name).attempt().is_err());
        assert!(world.howdah.login(&name, PASSWORD, "shop").attempt().is_err());
        assert!(world.login().parameter(&name, &name).attempt().is_err());
    }
    world.howdah.must_live();
    assert_eq!(world.client().value("SELECT 1"), "1");
}

#[test]
fn the_database_defaults_to_the_users_name() {
    let world = World::with(1, |setup| setup.database("app", "host=/nowhere"));
    let target = world.postgres.target(&world.db);
    let howdah = harness::Setup::new().database("app", &target).start();
    assert_eq!(
        howdah.login("app", PASSWORD, "").enter().value("SELECT current_database()"),
        world.db
    );
}

#[test]
fn garbage_instead_of_a_startup_packet() {
    let mut world = World::pool(1);
    let mut dice = harness::Dice::new();
    for round in 0..200 {
        let garbage: Vec<u8> =
            (0..dice.below(200)).map(|_| u8::try_from(dice.below(256)).expect("a byte")).collect();
        let mut client = Raw::open(&world.howdah.address()).expect("it listens");
        client.send(&garbage);
        if round % 2 == 0 {
            client.half_close();
            let _closed = client.hear(seconds(0.05));
        }
    }
    let mut client = Raw::open(&world.howdah.address()).expect("it listens");
    client.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(!matches!(client.hear(seconds(2.0)), Heard::Quiet), "it says no at once");
    world.howdah.must_live();
    assert_eq!(world.client().value("SELECT 1"), "1");
}
