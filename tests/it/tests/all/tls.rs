//! TLS on both sides: who gets it, whom we believe, and what nobody must be able to slip in.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use harness::certificates::{Certificates, Kind};
use harness::postgres::{PASSWORD, tool};
use harness::say::query;
use harness::{FakeServer, Howdah, Login, Postgres, Setup, World, eventually, place, seconds};

/// TLS for clients with the certificate `server`.
fn for_clients(setup: Setup, certificates: &Certificates, mode: &str) -> Setup {
    setup
        .set("client_tls_sslmode", mode)
        .set("client_tls_key_file", certificates.path("server.key"))
        .set("client_tls_cert_file", certificates.path("server.crt"))
}

/// What psql makes of a query through the pooler; the error if it fails.
fn psql(howdah: &Howdah, settings: &str, sql: &str) -> Result<String, String> {
    let place = format!(
        "host=localhost hostaddr=127.0.0.1 port={} user=app dbname=shop connect_timeout=20 {settings}",
        howdah.port()
    );
    let said = tool("psql")
        .env_remove("PGSSLMODE")
        // Where libpq looks for certificates nobody named.
        .env("HOME", howdah.folder())
        .args([&place, "-XAtqc", sql])
        .output()
        .expect("psql is installed");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if said.status.success() { Ok(text(&said.stdout)) } else { Err(text(&said.stderr)) }
}

#[test]
fn every_sslmode_of_clients() {
    let certificates = Certificates::new();
    let root = format!("sslrootcert={}", certificates.path("ca.crt"));
    for (mode, plain, encrypted) in [
        ("disable", true, false),
        ("allow", true, true),
        ("prefer", true, true),
        ("require", false, true),
    ] {
        let world = World::with(2, |setup| for_clients(setup, &certificates, mode));
        let try_as =
            |mode: &str| psql(&world.howdah, &format!("sslmode={mode} {root}"), "SELECT 1");
        assert_eq!(try_as("disable").is_ok(), plain, "{mode}: {:?}", try_as("disable"));
        if !plain {
            assert!(try_as("disable").is_err_and(|said| said.contains("SSL required")), "{mode}");
        }
        assert!(try_as("prefer").is_ok(), "{mode}: {:?}", try_as("prefer"));
        for theirs in ["require", "verify-ca", "verify-full"] {
            assert_eq!(try_as(theirs).is_ok(), encrypted, "{mode} {theirs}: {:?}", try_as(theirs));
        }
        let log = world.howdah.log();
        assert_eq!(log.contains("tls=TLSv1.3/TLS_AES_256_GCM_SHA384"), encrypted, "{mode}");
        // A unix socket needs none, whatever the mode.
        assert!(Login::new(world.howdah.socket(), "app", PASSWORD, "shop").attempt().is_ok());
    }
}

/// F6: a client that insists on it is bound to the channel; without TLS there is nothing to be bound to.
#[test]
fn f06_scram_is_bound_to_the_channel() {
    let certificates = Certificates::new();
    let world = World::with(1, |setup| for_clients(setup, &certificates, "prefer"));
    let with = |settings: &str| psql(&world.howdah, settings, "SELECT 'bound'");
    assert_eq!(with("sslmode=require channel_binding=require").as_deref(), Ok("bound"));
    assert_eq!(with("sslmode=require channel_binding=disable").as_deref(), Ok("bound"));
    let refused = with("sslmode=disable channel_binding=require").expect_err("nothing to bind to");
    assert!(refused.contains("channel binding"), "{refused}");
}

#[test]
fn clients_show_certificates() {
    let certificates = Certificates::new();
    certificates.make("app", Kind { subject: "/CN=app", by: "ca", ..Kind::default() });
    certificates.make("stranger", Kind { subject: "/CN=app", by: "other", ..Kind::default() });
    let late = Some(("20200101000000Z", "20210101000000Z"));
    certificates
        .make("late", Kind { subject: "/CN=app", by: "ca", times: late, ..Kind::default() });
    let with = |name: &str| {
        let [crt, key] = ["crt", "key"].map(|end| certificates.path(&format!("{name}.{end}")));
        format!("sslmode=require sslcert={crt} sslkey={key}")
    };
    for (mode, must) in [("prefer", false), ("verify-ca", true), ("verify-full", true)] {
        let world = World::with(2, |setup| {
            for_clients(setup, &certificates, mode)
                .set("client_tls_ca_file", certificates.path("ca.crt"))
        });
        let try_with = |settings: &str| psql(&world.howdah, settings, "SELECT 1");
        assert_eq!(try_with(&with("app")).as_deref(), Ok("1"), "{mode}");
        assert!(try_with(&with("stranger")).is_err(), "{mode}");
        assert!(try_with(&with("late")).is_err(), "{mode}");
        assert_eq!(try_with("sslmode=require sslcert=/none").is_err(), must, "{mode}");
        let log = world.howdah.log();
        assert!(log.contains("TLS handshake error: handshake failed: certificate verify failed"));
        assert!(log.contains("certificate has expired"), "{mode}");
        if must {
            assert!(log.contains("peer did not return a certificate"), "{mode}");
            assert!(try_with("sslmode=disable").is_err_and(|said| said.contains("SSL required")));
        }
    }
}

/// A pooler before this server, with these settings, and whether one gets through and by what.
fn through(
    postgres: &Postgres,
    host: &str,
    settings: &[(&str, &str)],
    expected: bool,
) -> (Howdah, Result<String, ()>) {
    let target = format!("host={host} port={} dbname=postgres", postgres.port());
    // Who is not to get in has to wait as long. Also a slow machine has tried it once by then.
    let patience = if expected { 60 } else { 5 };
    let mut setup = Setup::new()
        .database("shop", &target)
        .set("query_wait_timeout", patience)
        .set("client_login_timeout", patience);
    for (name, value) in settings {
        setup = setup.set(name, value);
    }
    let howdah = setup.start();
    let login = howdah.login("app", PASSWORD, "shop").attempt();
    let sql = "SELECT coalesce(version, 'plain') FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let version = login.map(|mut client| client.value(sql)).map_err(|_| ());
    (howdah, version)
}

#[test]
fn every_sslmode_of_servers() {
    let certificates = Certificates::new();
    let ca = certificates.path("ca.crt");
    let other = certificates.path("other.crt");
    let plain = Postgres::start("");
    let secure = Postgres::start(&certificates.for_postgres("server"));
    let (tls, no) = (Ok("TLSv1.3".to_owned()), Err(()));
    let unencrypted = || Ok("plain".to_owned());
    for (mode, with_plain, with_tls) in [
        ("disable", unencrypted(), unencrypted()),
        ("allow", unencrypted(), tls.clone()),
        ("prefer", unencrypted(), tls.clone()),
        ("require", no.clone(), tls.clone()),
        ("verify-ca", no.clone(), tls.clone()),
        ("verify-full", no.clone(), tls.clone()),
    ] {
        let settings = [("server_tls_sslmode", mode), ("server_tls_ca_file", &ca)];
        let (_howdah, version) = through(&plain, "localhost", &settings, with_plain.is_ok());
        assert_eq!(version, with_plain, "{mode}");
        let (howdah, version) = through(&secure, "localhost", &settings, with_tls.is_ok());
        assert_eq!(version, with_tls, "{mode}");
        if mode == "require" {
            assert!(howdah.log().contains("SSL established: TLSv1.3/TLS_AES_256_GCM_SHA384"));
            let shown = howdah.cell("SHOW SERVERS", &[("database", "shop")], "tls");
            assert_eq!(shown, "TLSv1.3/TLS_AES_256_GCM_SHA384");
        }
    }
    // Somebody else's certificate: a man in the middle.
    for (mode, host, ca, want) in [
        ("require", "127.0.0.1", &other, tls.clone()),
        ("verify-ca", "127.0.0.1", &other, no.clone()),
        ("verify-full", "localhost", &other, no.clone()),
        ("verify-ca", "127.0.0.1", &ca, tls.clone()),
        ("verify-full", "127.0.0.1", &ca, no.clone()),
    ] {
        let settings = [("server_tls_sslmode", mode), ("server_tls_ca_file", ca)];
        let (howdah, version) = through(&secure, host, &settings, want.is_ok());
        assert_eq!(version, want, "{mode} {host} {ca}");
        assert_eq!(howdah.log().contains("certificate verify failed"), want.is_err(), "{mode}");
    }
}

/// Without a round trip to ask first; PostgreSQL 17 and later know it. Cancels go the same way.
#[test]
fn direct_tls_to_servers() {
    let certificates = Certificates::new();
    let settings = format!("{}log_connections = on\n", certificates.for_postgres("server"));
    let postgres = Postgres::start(&settings);
    if postgres.version() < 17 {
        return eprintln!("PostgreSQL {} has no direct TLS: not tried", postgres.version());
    }
    let target = format!("host=localhost port={} dbname=postgres", postgres.port());
    let ca = certificates.path("ca.crt");
    for (mode, direct) in [("require", true), ("verify-full", true), ("verify-full", false)] {
        let how = if direct { "direct" } else { "postgres" };
        let howdah = Setup::new()
            .database("shop", &format!("{target} sslnegotiation={how}"))
            .set("server_tls_sslmode", mode)
            .set("server_tls_ca_file", &ca)
            .start();
        let mut client = howdah.login("app", PASSWORD, "shop").enter();
        let sql = "SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        assert_eq!(client.value(sql), "TLSv1.3", "{mode} {how}");
        assert!(howdah.log().contains("SSL established: TLSv1.3/"), "{mode} {how}");
        let canceller = client.canceller();
        let sleeping = std::thread::spawn(move || client.query("SELECT pg_sleep(60)"));
        eventually("it sleeps", || postgres.asleep("postgres") == 1);
        canceller.cancel();
        let reply = sleeping.join().expect("no panic");
        assert_eq!(reply.error().expect("cancelled").code(), "57014", "{mode} {how}");
    }
    // A server without TLS, and a certificate of somebody else's: no way in.
    let plain = Postgres::start("");
    let other = certificates.path("other.crt");
    for (postgres, mode, ca) in [(&plain, "require", &ca), (&postgres, "verify-full", &other)] {
        let target = format!("host=localhost port={} dbname=postgres", postgres.port());
        let howdah = Setup::new()
            .database("shop", &format!("{target} sslnegotiation=direct"))
            .set("server_tls_sslmode", mode)
            .set("server_tls_ca_file", ca)
            .set("query_wait_timeout", 3)
            .set("client_login_timeout", 3)
            .start();
        assert!(howdah.login("app", PASSWORD, "shop").attempt().is_err(), "{mode}");
    }
}

/// As they are made by PostgreSQL's manual, by `openssl req -x509`, and by those who read further.
#[test]
fn certificates_of_the_real_world() {
    let certificates = Certificates::new();
    let authority = "basicConstraints = critical, CA:true\n";
    let names = "subjectAltName = DNS:localhost, IP:127.0.0.1\n";
    let late = Some(("20200101000000Z", "20210101000000Z"));
    let kind = Kind { subject: "/CN=localhost", ..Kind::default() };
    certificates.make("self", Kind { extensions: authority, ..kind });
    certificates.make("named", Kind { subject: "/CN=x", by: "ca", extensions: names, ..kind });
    certificates
        .make("middle", Kind { subject: "/CN=middle", by: "ca", extensions: authority, ..kind });
    certificates.make("late", Kind { by: "ca", times: late, ..kind });
    for (server, ca, host, want) in [
        ("self", "self", "localhost", true),
        ("self", "ca", "localhost", false),
        ("named", "ca", "127.0.0.1", true),
        ("named", "ca", "localhost", true),
        ("late", "ca", "localhost", false),
        ("server", "middle", "localhost", false),
    ] {
        let postgres = Postgres::start(&certificates.for_postgres(server));
        let ca = certificates.path(&format!("{ca}.crt"));
        let settings = [("server_tls_sslmode", "verify-full"), ("server_tls_ca_file", &ca)];
        let (howdah, version) = through(&postgres, host, &settings, want);
        assert_eq!(version.is_ok(), want, "{server} {ca} {host}");
        assert_eq!(howdah.log().contains("certificate verify failed"), !want, "{server} {host}");
    }
}

/// CVE-2021-3935 and its like: what was said before the handshake is not taken for what came after.
#[test]
fn nothing_is_slipped_in_before_the_handshake() {
    let certificates = Certificates::new();
    let world = World::with(1, |setup| for_clients(setup, &certificates, "prefer"));
    for code in [80_877_103_u32, 80_877_104] {
        let mut stream =
            TcpStream::connect(("127.0.0.1", world.howdah.port())).expect("it listens");
        stream.set_read_timeout(Some(seconds(20.0))).expect("a socket");
        let mut request = [8_u32.to_be_bytes(), code.to_be_bytes()].concat();
        request.extend(world.login().startup());
        request.extend(query("SELECT 1"));
        stream.write_all(&request).expect("it listens");
        let mut said = Vec::new();
        let _reset = stream.read_to_end(&mut said);
        assert!(!said.starts_with(b"S") && !said.starts_with(b"N"), "{said:?}");
    }
    // After its answer, and in place of a handshake.
    let mut stream = TcpStream::connect(("127.0.0.1", world.howdah.port())).expect("it listens");
    stream.set_read_timeout(Some(seconds(20.0))).expect("a socket");
    stream
        .write_all(&[8_u32.to_be_bytes(), 80_877_103_u32.to_be_bytes()].concat())
        .expect("it listens");
    let mut yes = [0];
    stream.read_exact(&mut yes).expect("an answer");
    assert_eq!(yes, *b"S");
    stream.write_all(&world.login().startup()).expect("it listens");
    let mut said = Vec::new();
    let _reset = stream.read_to_end(&mut said);
    assert!(!said.contains(&b'R'), "{said:?}");
    assert!(world.howdah.log().contains("TLS handshake error"));
}

/// CVE-2024-10977 and its like: whatever somebody says in a server's place, before TLS, is told to nobody.
#[test]
fn nothing_a_server_says_before_the_handshake_counts() {
    for (answer, mode) in [
        (&b"EFATAL: send your password to me\0"[..], "prefer"),
        (b"EFATAL: send your password to me\0", "require"),
        (b"SFATAL: send your password to me\0", "require"),
        (b"NFATAL: send your password to me\0", "prefer"),
        (b"send your password to me", "prefer"),
    ] {
        let answer = answer.to_vec();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let fake = FakeServer::start(move |mut guest| {
            count.fetch_add(1, Ordering::SeqCst);
            guest.send(&answer);
            guest.stall();
        });
        let howdah = Setup::new()
            .database("shop", &fake.target())
            .set("server_tls_sslmode", mode)
            .set("query_wait_timeout", 2)
            .set("client_login_timeout", 2)
            .start();
        let refused = howdah.login("app", PASSWORD, "shop").attempt();
        let refused = refused.err().expect("nobody is behind it");
        assert!(!format!("{refused:?}").contains("send your password"), "{refused:?}");
        assert!(asked.load(Ordering::SeqCst) > 0);
        assert!(!howdah.log().contains("send your password"), "{}", howdah.log());
        assert!(howdah.log().contains("TLS handshake error"), "{}", howdah.log());
    }
}

#[test]
fn a_reload_brings_a_new_certificate_and_drops_nobody() {
    let certificates = Certificates::new();
    certificates.make("next", Kind { subject: "/CN=next", by: "ca", ..Kind::default() });
    let world = World::with(2, |setup| for_clients(setup, &certificates, "require"));
    let shown = || {
        let said = Command::new("openssl")
            .args(["s_client", "-starttls", "postgres", "-connect"])
            .arg(format!("127.0.0.1:{}", world.howdah.port()))
            .stdin(Stdio::null())
            .output()
            .expect("openssl is installed");
        String::from_utf8_lossy(&said.stdout).into_owned()
    };
    assert!(shown().contains("CN = localhost"), "{}", shown());
    let mut client = world.login().encrypted().enter();
    client.run("BEGIN");

    certificates.replace("server", "next");
    assert!(world.howdah.console("RELOAD").error().is_none());
    eventually("the new certificate is shown", || shown().contains("CN = next"));
    assert_eq!(client.value("SELECT 7"), "7");

    std::fs::remove_file(certificates.path("server.crt")).expect("it was there");
    let error = world.howdah.console("RELOAD").error().expect("a failure");
    assert_eq!(error.code(), "F0000");
    let log = world.howdah.log();
    assert!(log.contains("TLS setup failed: failed to load certificate file"), "{log}");
    assert!(log.contains("No such file or directory"), "{log}");
    assert!(shown().contains("CN = next"), "the old one stays");
    assert_eq!(client.run("COMMIT").tags(), "CZ");
}

#[test]
fn servers_are_replaced_when_their_tls_changes_and_only_then() {
    let certificates = Certificates::new();
    let postgres = Postgres::start(&certificates.for_postgres("server"));
    let target = format!("host=localhost port={} dbname=postgres", postgres.port());
    let mut howdah =
        Setup::new().database("shop", &target).set("server_tls_sslmode", "require").start();
    let server = |howdah: &Howdah| {
        let pid = howdah.login("app", PASSWORD, "shop").enter().value("SELECT pg_backend_pid()");
        // It may be asked something yet, and whoever comes meanwhile is given another.
        eventually("the server is idle", || {
            howdah.rows("SHOW SERVERS", &[], "state").iter().all(|state| state == "idle")
        });
        pid
    };
    let first = server(&howdah);
    howdah.reload(|setup| setup);
    assert_eq!(server(&howdah), first);
    let ca = certificates.path("ca.crt");
    howdah.reload(|setup| {
        setup.set("server_tls_sslmode", "verify-ca").set("server_tls_ca_file", &ca)
    });
    let mut second = String::new();
    eventually("another server", || {
        second = server(&howdah);
        second != first
    });
    assert!(howdah.log().contains("closing because: database configuration changed"));
    // The same name, and another content.
    let more = std::fs::read_to_string(certificates.path("other.crt")).expect("it was made");
    let less = std::fs::read_to_string(&ca).expect("it was made");
    place::write(std::path::Path::new(&ca), &format!("{less}{more}"));
    howdah.order("RELOAD");
    eventually("another server", || server(&howdah) != second);
}

/// Encrypted on both sides, on however many workers: queries, cancels, and servers that move.
#[test]
fn d6_cancels_go_the_way_of_their_server() {
    let certificates = Certificates::new();
    let postgres =
        Postgres::start(&format!("{}log_connections = on\n", certificates.for_postgres("server")));
    let target = format!("host=localhost port={} dbname=postgres", postgres.port());
    let setup = for_clients(Setup::new(), &certificates, "require")
        .database("shop", &target)
        .set("server_tls_sslmode", "require")
        .set("default_pool_size", 1);
    let howdah = setup.start();
    let login = || howdah.login("app", PASSWORD, "shop").encrypted();
    let mut sleeper = login().enter();
    let canceller = sleeper.canceller();
    let sleeping = std::thread::spawn(move || {
        let reply = sleeper.query("SELECT pg_sleep(60)");
        (sleeper, reply)
    });
    eventually("it sleeps", || postgres.asleep("postgres") == 1);
    canceller.cancel();
    let (mut sleeper, reply) = sleeping.join().expect("no panic");
    assert_eq!(reply.error().expect("cancelled").code(), "57014");
    assert_eq!(sleeper.value("SELECT 1"), "1");

    let mut clients: Vec<_> = (0..6).map(|_| login().enter()).collect();
    for round in 0..40 {
        for client in &mut clients {
            assert_eq!(client.value(&format!("SELECT {round}")), round.to_string());
        }
    }
    let shown = howdah.admin().run("SHOW SERVERS").table();
    assert_eq!(shown.len(), 1, "{shown:?}");
}

#[test]
fn direct_tls_wants_its_protocol_named() {
    let certificates = Certificates::new();
    let world = World::with(1, |setup| for_clients(setup, &certificates, "prefer"));
    let s_client = |arguments: &[&str]| {
        let said = Command::new("openssl")
            .args(["s_client", "-connect", &format!("127.0.0.1:{}", world.howdah.port())])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .expect("openssl is installed");
        String::from_utf8_lossy(&said.stdout).into_owned()
    };
    assert!(s_client(&["-alpn", "postgresql"]).contains("ALPN protocol: postgresql"));
    assert!(!s_client(&["-alpn", "http/1.1"]).contains("ALPN protocol: http"));
    let _shaken = s_client(&[]);
    eventually("it was turned away", || {
        world.howdah.log().contains("direct TLS connection without ALPN")
    });
    // And a session can be resumed.
    let file = world.howdah.folder().join("session").display().to_string();
    // s_client has to hear a ticket before it goes.
    let first = Command::new("sh")
        .args(["-c", &format!(
            "sleep 1 | openssl s_client -tls1_2 -alpn postgresql -connect 127.0.0.1:{} -sess_out {file}",
            world.howdah.port()
        )])
        .output()
        .expect("a shell");
    assert!(String::from_utf8_lossy(&first.stdout).contains("New, TLSv1.2"), "{first:?}");
    let again = s_client(&["-tls1_2", "-alpn", "postgresql", "-sess_in", &file]);
    assert!(again.contains("Reused, TLSv1.2"), "{again}");
}

/// Who takes both sides' bytes must not wait for either: a long query against a long stream of notices, and neither is
/// ever held as a whole.
#[test]
fn b23_both_directions_at_once() {
    const LENGTH: usize = 64 << 20;
    let certificates = Certificates::new();
    let postgres = Postgres::start(&certificates.for_postgres("server"));
    let target = format!("host=localhost port={} dbname=postgres", postgres.port());
    let howdah = for_clients(Setup::new(), &certificates, "require")
        .database("shop", &target)
        .set("server_tls_sslmode", "require")
        .start();
    let mut client = howdah.login("app", PASSWORD, "shop").encrypted().enter();
    let before = peak_kb(&howdah);
    let notices = format!(
        "DO $$BEGIN FOR i IN 1..{} LOOP RAISE NOTICE '%', repeat('n', 1048576); END LOOP; END$$",
        LENGTH >> 20
    );
    let long = format!("SELECT length('{}')", "q".repeat(LENGTH));
    let both = [query(&notices), query(&long)].concat();
    let reply = client.ask_at_once(&both, 2);
    assert_eq!(reply.count(b'N'), LENGTH >> 20);
    assert_eq!(reply.value(), LENGTH.to_string());
    let grown = peak_kb(&howdah) - before;
    assert!(grown < 16 << 10, "{grown} KB more");
}

/// The most memory that it ever had, in KB.
fn peak_kb(howdah: &Howdah) -> usize {
    let path = format!("/proc/{}/status", howdah.pid());
    let status = std::fs::read_to_string(path).expect("it lives");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line for it");
    peak.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Twice the result, about twice the work.
#[test]
fn a_large_result_takes_linear_time() {
    let certificates = Certificates::new();
    let postgres = Postgres::start(&certificates.for_postgres("server"));
    let target = format!("host=localhost port={} dbname=postgres", postgres.port());
    let howdah = for_clients(Setup::new(), &certificates, "require")
        .database("shop", &target)
        .set("server_tls_sslmode", "require")
        .start();
    let worked = || {
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", howdah.pid())).expect("it lives");
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split(' ').collect();
        let ticks = |at: usize| fields[at].parse::<u64>().expect("a number");
        ticks(12) + ticks(13)
    };
    let mut client = howdah.login("app", PASSWORD, "shop").encrypted().enter();
    let mut cost = |megabytes: usize| {
        let before = worked();
        let sql = format!("SELECT repeat('x', 1048576) FROM generate_series(1, {megabytes})");
        let reply = client.query(&sql);
        assert_eq!(reply.count(b'D'), megabytes);
        worked() - before
    };
    let (_warm, small, large) = (cost(5), cost(20), cost(100));
    assert!(large < small.max(20) * 12, "{small} ticks for 20 MB, {large} for 100");
}

#[test]
fn a_client_that_vanishes_is_no_error() {
    let certificates = Certificates::new();
    let world = World::with(1, |setup| for_clients(setup, &certificates, "require"));
    let client = world.login().encrypted().enter();
    client.half_close();
    eventually("it is gone", || world.howdah.log().contains("client unexpected eof"));
    assert!(!world.howdah.log().contains("TLS handshake error"), "{}", world.howdah.log());
    drop(client);
}

/// What rustls has not is said, and what means nothing is refused.
#[test]
fn settings_are_mapped_or_said() {
    let certificates = Certificates::new();
    let with = |settings: &[(&str, &str)]| {
        let mut setup =
            for_clients(Setup::new().database("shop", "host=127.0.0.1"), &certificates, "prefer");
        for (name, value) in settings {
            setup = setup.set(name, value);
        }
        setup.try_start()
    };
    let howdah = with(&[
        ("client_tls_protocols", "all"),
        ("server_tls_protocols", "tlsv1.0"),
        ("server_tls_sslmode", "disable"),
    ])
    .unwrap_or_else(|(_, said)| panic!("{said}"));
    assert!(howdah.log().contains("client_tls_protocols: there is no tlsv1.0, tlsv1.1 here"));
    let howdah = with(&[("client_tls13_ciphers", "TLS_CHACHA20_POLY1305_SHA256")])
        .unwrap_or_else(|(_, said)| panic!("{said}"));
    let _ = psql(&howdah, "sslmode=require", "SELECT 1");
    assert!(howdah.log().contains("tls=TLSv1.3/TLS_CHACHA20_POLY1305_SHA256"), "{}", howdah.log());
    howdah.order("SET client_tls13_ciphers = 'nonsense'");
    assert!(howdah.log().contains("TLS setup failed: failed to set the TLSv1.3 cipher suites"));
    for (name, value, want) in [
        ("client_tls_key_file", "/none", "failed to load private key file \"/none\": No such file"),
        ("client_tls_ciphers", "nonsense", "there is no nonsense"),
        (
            "client_tls_protocols",
            "tlsv9",
            "invalid value \"tlsv9\" for parameter client_tls_protocols",
        ),
        ("client_tls_protocols", "tlsv1.0:tlsv1.1", "of these versions there is none here"),
        ("client_tls_protocols", "all:!tlsv1.3:!tlsv1.2", "of these versions there is none here"),
        (
            "client_tls_ecdhcurve",
            "P-521",
            "invalid value \"P-521\" for parameter client_tls_ecdhcurve",
        ),
        (
            "client_tls_ecdhcurve",
            "round",
            "invalid value \"round\" for parameter client_tls_ecdhcurve",
        ),
        ("client_tls_sslmode", "verify-full", "client_tls_ca_file must be set"),
    ] {
        match with(&[(name, value)]) {
            Ok(howdah) => assert!(howdah.log().contains(want), "{name}: {}", howdah.log()),
            Err((status, said)) => {
                assert_eq!(status.code(), Some(1), "{name}");
                assert!(said.contains(want), "{name}: {said}");
            }
        }
    }
}

/// What leaves nothing to shake hands with stops the start of either side, and a RELOAD keeps what there was.
#[test]
fn nothing_left_is_an_error() {
    howdah_only!("OpenSSL has these versions");
    let certificates = Certificates::new();
    let unusable = [
        ("tls_protocols", "tlsv1.1", "there is none here"),
        ("tls13_ciphers", "nonsense", "failed to set the TLSv1.3 cipher suites"),
    ];
    for (name, value, want) in unusable {
        let setup = Setup::new().database("shop", "host=127.0.0.1");
        let setup = setup.set("server_tls_sslmode", "prefer").set(&format!("server_{name}"), value);
        let (status, said) = setup.try_start().err().expect("it does not start");
        assert_eq!(status.code(), Some(1), "{name}");
        assert!(said.contains(want), "{name}: {said}");
    }
    let mut world = World::with(1, |setup| for_clients(setup, &certificates, "require"));
    for (name, value, want) in unusable {
        let name = format!("client_{name}");
        world.howdah.rewrite(|setup| setup.set(&name, value));
        let error = world.howdah.console("RELOAD");
        assert!(error.error().is_some(), "{name}");
        assert!(world.howdah.log().contains(want), "{name}: {}", world.howdah.log());
        assert_eq!(world.login().encrypted().enter().value("SELECT 1"), "1", "{name}");
        world.howdah.reload(|setup| setup.unset(&name));
    }
}
