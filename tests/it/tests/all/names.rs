//! Host names of servers, asked for at a name server whose answers the tests choose: bug class E13.

use harness::postgres::PASSWORD;
use harness::say::query;
use harness::{Howdah, Mood, NameServer, Postgres, Raw, Setup, eventually};

/// A pooler that asks `names`, in front of a fresh database at `host`.
fn pooler(names: &NameServer, host: &str, change: impl FnOnce(Setup) -> Setup) -> Howdah {
    pooler_searching(names, "", host, change)
}

fn pooler_searching(
    names: &NameServer,
    more: &str,
    host: &str,
    change: impl FnOnce(Setup) -> Setup,
) -> Howdah {
    let postgres = Postgres::shared();
    let db = postgres.database();
    let target = format!("host={host} port={} dbname={db}", postgres.port());
    let setup = Setup::new()
        .set("resolv_conf", names.resolv_conf(more))
        .set("server_login_retry", "0.1")
        .set("default_pool_size", 4)
        .database("shop", &target);
    change(setup).start()
}

fn client(howdah: &Howdah) -> Raw {
    howdah.login("app", PASSWORD, "shop").enter()
}

/// The addresses of the servers that `count` clients at once get.
fn places(howdah: &Howdah, count: usize) -> Vec<String> {
    let mut clients: Vec<_> = (0..count).map(|_| client(howdah)).collect();
    let places = clients.iter_mut().map(|client| {
        client.run("BEGIN");
        client.value("SELECT host(inet_server_addr())")
    });
    let mut places: Vec<_> = places.collect();
    places.sort();
    places
}

fn dns_cell(howdah: &Howdah, host: &str, column: &str) -> String {
    howdah.cell("SHOW DNS_HOSTS", &[("hostname", host)], column)
}

#[test]
fn e13_every_address_of_a_name_has_its_turn() {
    howdah_only!("1.18 of Debian has another resolver");
    let Some(names) = NameServer::start() else { return };
    names.host("db.test", &["127.0.0.1", "127.0.0.2", "::1"]);
    let howdah = pooler(&names, "db.test", |setup| setup);
    assert_eq!(places(&howdah, 3), ["127.0.0.1", "127.0.0.2", "::1"]);
    assert_eq!(names.asked("db.test"), 1, "one lookup serves all workers");
    assert_eq!(dns_cell(&howdah, "db.test", "addrs"), "127.0.0.1:0,127.0.0.2:0,[::1]:0");
    let ttl: u32 = dns_cell(&howdah, "db.test", "ttl").parse().expect("a number");
    assert!(ttl <= 15, "the server said 4294967295, and dns_max_ttl 15: {ttl}");
    let lists = |list| howdah.cell("SHOW LISTS", &[("list", list)], "items");
    assert_eq!((lists("dns_names"), lists("dns_zones")), ("1".into(), "0".into()));
    assert_eq!((lists("dns_queries"), lists("dns_pending")), ("0".into(), "0".into()));
}

#[test]
fn e13_an_alias_and_a_name_with_ipv6_only() {
    howdah_only!("1.18 of Debian has another resolver");
    let Some(names) = NameServer::start() else { return };
    names.host("six.test", &["::1"]);
    names.alias("middle.test", "six.test");
    names.alias("db.test", "middle.test");
    let howdah = pooler(&names, "db.test", |setup| setup);
    assert_eq!(places(&howdah, 1), ["::1"]);
}

#[test]
fn e13_search_domains_are_tried_in_their_order() {
    howdah_only!("1.18 of Debian has another resolver");
    let Some(names) = NameServer::start() else { return };
    names.host("db.second.test", &["127.0.0.3"]);
    let more = "search first.test second.test\n";
    let howdah = pooler_searching(&names, more, "db", |setup| setup);
    assert_eq!(places(&howdah, 1), ["127.0.0.3"]);
    assert_eq!((names.asked("db.first.test"), names.asked("db.second.test")), (1, 1));
}

/// Nobody listens at the first two addresses; nobody is refused or waits for that.
#[test]
fn e13_where_one_address_is_dead_the_next_is_dialled_at_once() {
    howdah_only!("PgBouncer waits for server_login_retry");
    let Some(names) = NameServer::start() else { return };
    names.host("db.test", &["127.0.0.9", "127.0.0.8", "127.0.0.2"]);
    let howdah = pooler(&names, "db.test", |setup| setup.set("server_login_retry", 1000));
    assert_eq!(client(&howdah).value("SELECT 1"), "1");
    let log = howdah.log();
    assert!(log.contains("connect to 127.0.0.9:"), "{log}");
}

/// At the first address nobody says no: the kernel's backlog is full there, and it answers nothing.
#[test]
fn e13_where_one_address_is_a_black_hole_the_next_is_dialled_in_time() {
    howdah_only!("PgBouncer waits for server_login_retry");
    let Some(names) = NameServer::start() else { return };
    names.host("db.test", &["127.0.0.7", "127.0.0.2"]);
    let hole = std::net::TcpListener::bind(("127.0.0.7", Postgres::shared().port())).expect("free");
    rustix::net::listen(&hole, 0).expect("it is a listener");
    let at = hole.local_addr().expect("it is bound");
    let short = std::time::Duration::from_millis(300);
    let mut filling = Vec::new();
    while let Ok(one) = std::net::TcpStream::connect_timeout(&at, short) {
        filling.push(one);
    }
    let howdah = pooler(&names, "db.test", |setup| {
        setup.set("server_connect_timeout", 1).set("server_login_retry", 1000)
    });
    assert_eq!(client(&howdah).value("SELECT host(inet_server_addr())"), "127.0.0.2");
}

#[test]
fn e13_servers_at_an_address_that_is_gone_are_replaced() {
    howdah_only!("1.18 of Debian has another resolver");
    let Some(names) = NameServer::start() else { return };
    names.host("db.test", &["127.0.0.1", "127.0.0.2"]);
    let howdah = pooler(&names, "db.test", |setup| setup.set("dns_max_ttl", "0"));
    let mut old = [client(&howdah), client(&howdah)];
    for one in &mut old {
        one.run("BEGIN");
    }
    // A failover: both are elsewhere now, which the next lookup tells.
    names.host("db.test", &["127.0.0.3"]);
    assert_eq!(places(&howdah, 1), ["127.0.0.3"]);
    let marked = || {
        let mut marked = howdah.rows("SHOW SERVERS", &[("close_needed", "1")], "addr");
        marked.sort();
        marked
    };
    eventually("they are marked", || marked() == ["127.0.0.1", "127.0.0.2"]);
    for one in &mut old {
        one.run("COMMIT");
        assert_eq!(one.value("SELECT host(inet_server_addr())"), "127.0.0.3");
    }
    eventually("they are closed as they come free", || marked().is_empty());
    let line = "DNS: db.test is no longer at 127.0.0.1, 127.0.0.2";
    assert!(howdah.log().contains(line), "{}", howdah.log());
}

#[test]
fn e13_no_such_host() {
    howdah_only!("1.18 of Debian has another resolver");
    let Some(names) = NameServer::start() else { return };
    let howdah = pooler(&names, "db.test", |setup| {
        setup.set("query_wait_timeout", 60).set("dns_nxdomain_ttl", "1").set("log_pooler_errors", 1)
    });
    let login = howdah.login("app", PASSWORD, "shop");
    let early = std::thread::spawn(move || login.enter().value("SELECT 1"));
    eventually("it was asked for", || names.asked("db.test") > 0);
    eventually("the log says so", || {
        howdah.log().contains("closing because: server DNS lookup failed")
            && howdah.log().contains("DNS lookup failed: db.test: no such host")
    });
    assert_eq!(dns_cell(&howdah, "db.test", "addrs"), "");
    // Once there is one, those who waited are served.
    names.host("db.test", &["127.0.0.1"]);
    assert_eq!(early.join().expect("it got in"), "1");
}

/// What is known goes on being used while the name servers do not answer; what a name server denies does not.
#[test]
fn e13_an_ill_name_server_is_no_failover() {
    howdah_only!("1.18 of Debian has another resolver");
    let Some(names) = NameServer::start() else { return };
    names.host("db.test", &["127.0.0.2"]);
    let howdah = pooler(&names, "db.test", |setup| {
        setup.set("dns_max_ttl", "0").set("dns_nxdomain_ttl", "0").set("server_lifetime", 0)
    });
    let mut client = client(&howdah);
    for mood in [Mood::Well, Mood::Ill, Mood::Mute] {
        names.mood(mood);
        assert_eq!(client.value("SELECT host(inet_server_addr())"), "127.0.0.2", "{mood:?}");
    }
    names.mood(Mood::Well);
    names.forget("db.test");
    client.send(&query("SELECT host(inet_server_addr())"));
    eventually("nothing more is dialled", || {
        howdah.log().contains("DNS lookup failed: db.test: no")
    });
    names.host("db.test", &["127.0.0.4"]);
    assert_eq!(client.until_ready().value(), "127.0.0.4");
}

#[test]
fn e13_a_zone_whose_serial_number_changes_is_looked_up_again() {
    howdah_only!("1.18 of Debian has another resolver");
    let Some(names) = NameServer::start() else { return };
    names.host("db.zone.test", &["127.0.0.1"]);
    names.serial("zone.test", 7);
    let howdah = pooler(&names, "db.zone.test", |setup| {
        setup.set("dns_max_ttl", 100_000).set("dns_zone_check_period", "0.3")
    });
    let mut client = client(&howdah);
    assert_eq!(client.value("SELECT host(inet_server_addr())"), "127.0.0.1");
    let zone = |column| howdah.cell("SHOW DNS_ZONES", &[("zonename", "zone.test")], column);
    let known = [("zonename", "zone.test"), ("serial", "7")];
    eventually("the zone is known", || howdah.has_row("SHOW DNS_ZONES", &known));
    assert_eq!(zone("count"), "1");
    assert_eq!(names.asked("db.zone.test"), 1);
    names.host("db.zone.test", &["127.0.0.2"]);
    names.serial("zone.test", 8);
    eventually("the move is noticed", || {
        client.value("SELECT host(inet_server_addr())") == "127.0.0.2"
    });
    assert_eq!(zone("serial"), "8");
    assert_eq!(names.asked("db.zone.test"), 2);
}

/// Names, addresses and directories in one list; each new server takes the next.
#[test]
fn hosts_of_all_kinds_take_turns() {
    howdah_only!("1.18 has no load_balance_hosts");
    let Some(names) = NameServer::start() else { return };
    names.host("db.test", &["127.0.0.2"]);
    let folder = Postgres::shared().folder().display().to_string();
    let hosts = format!("db.test,127.0.0.3,{folder}");
    let howdah = pooler(&names, &hosts, |setup| setup);
    let mut clients: Vec<_> = (0..3).map(|_| client(&howdah)).collect();
    let place = |client: &mut Raw| {
        client.run("BEGIN");
        client.run("SELECT host(inet_server_addr())").rows()[0][0].clone()
    };
    let mut places: Vec<_> = clients.iter_mut().map(place).collect();
    places.sort();
    assert_eq!(places, [None, Some("127.0.0.2".into()), Some("127.0.0.3".into())]);
    for view in ["SHOW DATABASES", "SHOW POOLS"] {
        let which = if view == "SHOW POOLS" { "database" } else { "name" };
        assert_eq!(howdah.cell(view, &[(which, "shop")], "load_balance_hosts"), "round-robin");
        assert_eq!(howdah.cell(view, &[(which, "pgbouncer")], "load_balance_hosts"), "");
    }
}

#[test]
fn load_balance_hosts_disable_stays_at_the_first_that_works() {
    howdah_only!("1.18 has no load_balance_hosts");
    let postgres = Postgres::shared();
    let db = postgres.database();
    let port = postgres.port();
    let target = |hosts| format!("host={hosts} port={port} dbname={db} load_balance_hosts=disable");
    let howdah = Setup::new()
        .set("default_pool_size", 3)
        .set("server_login_retry", 1000)
        .database("shop", &target("127.0.0.2,127.0.0.3"))
        .database("half", &target("127.0.0.9,127.0.0.2"))
        .start();
    assert_eq!(places(&howdah, 3), ["127.0.0.2"; 3]);
    let half = || howdah.login("app", PASSWORD, "half").enter();
    let mut clients = [half(), half(), half()];
    for client in &mut clients {
        client.run("BEGIN");
    }
    let failed = howdah.log().matches(&format!("connect to 127.0.0.9:{port} failed")).count();
    assert!((1..3).contains(&failed), "the first that works is the first from then on: {failed}");
    assert_eq!(howdah.cell("SHOW DATABASES", &[("name", "half")], "load_balance_hosts"), "disable");
}

#[test]
fn etc_hosts_needs_no_name_server() {
    howdah_only!("1.18 of Debian has another resolver");
    let Some(names) = NameServer::start() else { return };
    names.mood(Mood::Mute);
    let howdah = pooler(&names, "localhost", |setup| setup);
    let mut client = client(&howdah);
    assert!(["127.0.0.1", "::1"].contains(&&*client.value("SELECT host(inet_server_addr())")));
    assert_eq!(names.asked("localhost"), 0);
}

#[test]
fn names_that_are_used_no_longer_are_forgotten() {
    howdah_only!("PgBouncer keeps them");
    let Some(names) = NameServer::start() else { return };
    names.host("db.test", &["127.0.0.1"]);
    let mut howdah = pooler(&names, "db.test", |setup| setup);
    assert_eq!(client(&howdah).value("SELECT 1"), "1");
    assert_eq!(dns_cell(&howdah, "db.test", "hostname"), "db.test");
    howdah.reload(|setup| setup.database("shop", "host=127.0.0.1"));
    eventually("it is forgotten", || !howdah.has_row("SHOW DNS_HOSTS", &[("hostname", "db.test")]));
}
