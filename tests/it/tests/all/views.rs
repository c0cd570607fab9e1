//! Every SHOW view, column for column: name and type, as monitoring tools read them.

use harness::{Reply, World};

const T: i32 = 25;
const I: i32 = 23;
const Q: i32 = 20;
const N: i32 = 1700;
const B: i32 = 17;

/// `name:type …` with the type's first letter.
fn shape(reply: &Reply) -> Vec<String> {
    let letter = |kind: i32| match kind {
        T => 't',
        I => 'i',
        Q => 'q',
        N => 'n',
        B => 'b',
        _ => '?',
    };
    let columns =
        reply.of(b'T').next().unwrap_or_else(|| panic!("no columns in {reply:?}")).columns();
    columns.into_iter().map(|(name, kind)| format!("{name}:{}", letter(kind))).collect()
}

/// A view and its columns. Types as in [`shape`].
const VIEWS: &[(&str, &str)] = &[
    (
        "DATABASES",
        "name:t host:t port:i database:t force_user:t pool_size:i min_pool_size:i reserve_pool_size:i server_lifetime:i \
         pool_mode:t load_balance_hosts:t max_connections:i current_connections:i max_client_connections:i \
         current_client_connections:i paused:i disabled:i",
    ),
    (
        "POOLS",
        "database:t user:t cl_active:i cl_waiting:i cl_active_cancel_req:i cl_waiting_cancel_req:i sv_active:i \
         sv_active_cancel:i sv_being_canceled:i sv_idle:i sv_used:i sv_tested:i sv_login:i maxwait:i maxwait_us:i \
         pool_mode:t load_balance_hosts:t",
    ),
    ("PEERS", "peer_id:i host:t port:i pool_size:i"),
    (
        "PEER_POOLS",
        "peer_id:i cl_active_cancel_req:i cl_waiting_cancel_req:i sv_active_cancel:i sv_login:i",
    ),
    ("CLIENTS", SOCKET),
    ("SERVERS", SOCKET),
    ("SOCKETS", SOCKET_AND_BUFFERS),
    ("ACTIVE_SOCKETS", SOCKET_AND_BUFFERS),
    ("LISTS", "list:t items:i"),
    (
        "USERS",
        "name:t pool_size:t reserve_pool_size:t pool_mode:t max_user_connections:i current_connections:i \
         max_user_client_connections:i current_client_connections:i",
    ),
    (
        "STATS",
        "database:t total_server_assignment_count:n total_xact_count:n total_query_count:n total_received:n total_sent:n \
         total_xact_time:n total_query_time:n total_wait_time:n total_client_parse_count:n total_server_parse_count:n \
         total_bind_count:n total_client_login_count:n avg_server_assignment_count:n avg_xact_count:n avg_query_count:n \
         avg_recv:n avg_sent:n avg_xact_time:n avg_query_time:n avg_wait_time:n avg_client_parse_count:n \
         avg_server_parse_count:n avg_bind_count:n avg_client_login_count:n",
    ),
    (
        "STATS_TOTALS",
        "database:t server_assignment_count:n xact_count:n query_count:n bytes_received:n bytes_sent:n xact_time:n \
         query_time:n wait_time:n client_parse_count:n server_parse_count:n bind_count:n client_login_count:n",
    ),
    (
        "STATS_AVERAGES",
        "database:t server_assignment_count:n xact_count:n query_count:n bytes_received:n bytes_sent:n xact_time:n \
         query_time:n wait_time:n avg_client_parse_count:n avg_server_parse_count:n avg_bind_count:n \
         avg_client_login_count:n",
    ),
    ("TOTALS", "name:t value:n"),
    ("CONFIG", "key:t value:t default:t changeable:t"),
    ("VERSION", "version:t"),
    ("STATE", "key:t value:t"),
    ("MEM", "name:t size:i used:i free:i memtotal:i"),
    ("DNS_HOSTS", "hostname:t ttl:q addrs:t"),
    ("DNS_ZONES", "zonename:t serial:q count:i"),
    (
        "FDS",
        "fd:i task:t user:t database:t addr:t port:i cancel:q link:i client_encoding:t std_strings:t datestyle:t \
         timezone:t password:t scram_client_key:b scram_server_key:b",
    ),
];

const SOCKET: &str = "type:t user:t database:t replication:t state:t addr:t port:i local_addr:t local_port:i connect_time:t \
                      request_time:t wait:i wait_us:i close_needed:i ptr:t link:t remote_pid:i tls:t application_name:t \
                      prepared_statements:i id:i pin_reasons:t pinned_since:t";

const SOCKET_AND_BUFFERS: &str = "type:t user:t database:t replication:t state:t addr:t port:i local_addr:t local_port:i \
                                  connect_time:t request_time:t wait:i wait_us:i close_needed:i ptr:t link:t \
                                  remote_pid:i tls:t application_name:t prepared_statements:i id:i recv_pos:i pkt_pos:i \
                                  pkt_remain:i send_pos:i send_remain:i pkt_avail:i send_avail:i";

#[test]
fn every_view_has_its_columns() {
    howdah_only!("views grew after 1.18");
    let world = World::pool(2);
    let (_idle, mut busy) = (world.client(), world.client());
    busy.run("BEGIN");
    let mut wrong = Vec::new();
    for (view, columns) in VIEWS {
        // FDS sends the descriptors along, which only a unix socket can.
        let mut admin = if *view == "FDS" {
            let mut login = world.howdah.login("boss", harness::postgres::PASSWORD, "pgbouncer");
            login.address = world.howdah.socket();
            login.enter()
        } else {
            world.howdah.admin()
        };
        let reply = admin.query(&format!("SHOW {view}"));
        let expected: Vec<_> = columns.split_whitespace().collect();
        if reply.error().is_some() || shape(&reply) != expected || reply.command() != "SHOW" {
            wrong.push(format!(
                "{view}:\n  {}\n  {:?}",
                expected.join(" "),
                reply
                    .error()
                    .map_or_else(|| shape(&reply).join(" "), |error| error.text().to_owned())
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn views_say_what_is() {
    let world = World::with(3, |setup| setup.database_also("shop", "pool_size=2 min_pool_size=0"));
    let (_idle, mut busy) =
        (world.client(), world.login().parameter("application_name", "till").enter());
    busy.run("BEGIN");
    let of_busy = |view: &str, column: &str| {
        world.howdah.cell(view, &[("database", "shop"), ("application_name", "till")], column)
    };
    assert_eq!(of_busy("SHOW CLIENTS", "state"), "active");
    assert_eq!(of_busy("SHOW CLIENTS", "type"), "C");
    assert_eq!(of_busy("SHOW CLIENTS", "user"), "app");
    assert_eq!(of_busy("SHOW CLIENTS", "addr"), "127.0.0.1");
    assert_eq!(of_busy("SHOW SERVERS", "state"), "active");
    assert_eq!(of_busy("SHOW SERVERS", "port"), world.postgres.port().to_string());
    assert_eq!(of_busy("SHOW CLIENTS", "link"), of_busy("SHOW SERVERS", "ptr"));
    let pid = busy.value("SELECT pg_backend_pid()");
    assert_eq!(of_busy("SHOW SERVERS", "remote_pid"), pid);
    let database = |column: &str| world.howdah.cell("SHOW DATABASES", &[("name", "shop")], column);
    assert_eq!(database("database"), world.db);
    assert_eq!((database("pool_size").as_str(), database("paused").as_str()), ("2", "0"));
    assert_eq!(world.pools("cl_active"), "2");
    assert_eq!(world.pools("sv_active"), "1");
    assert_eq!(world.pools("pool_mode"), "transaction");
    let list = |name: &str| world.howdah.cell("SHOW LISTS", &[("list", name)], "items");
    assert_eq!(list("used_servers"), "1");
    assert_eq!(
        world.howdah.cell("SHOW DATABASES", &[("name", "pgbouncer")], "database"),
        "pgbouncer"
    );
}

#[test]
fn a_waiting_client_shows_how_long_it_waits() {
    let world = World::pool(1);
    let (mut holder, mut waiting) = (world.client(), world.client());
    holder.run("BEGIN");
    waiting.send(&harness::say::query("SELECT 1"));
    harness::eventually("it has waited a second", || world.pools("maxwait") == "1");
    assert_eq!(world.pools("cl_waiting"), "1");
    assert_eq!(world.howdah.rows("SHOW CLIENTS", &[("state", "waiting")], "user"), ["app"]);
    holder.run("COMMIT");
    waiting.until_ready();
    assert_eq!(world.pools("maxwait"), "0");
}

#[test]
fn statistics_count() {
    let world = World::pool(2);
    let mut client = world.client();
    for _ in 0..3 {
        client.run("SELECT 1");
    }
    client.run("BEGIN");
    client.run("SELECT pg_sleep(0.2)");
    client.run("COMMIT");
    let stat = |column: &str| world.howdah.cell("SHOW STATS", &[("database", "shop")], column);
    harness::eventually("all are counted", || stat("total_xact_count") == "4");
    assert_eq!(stat("total_query_count"), "6");
    let slept: u64 = stat("total_query_time").parse().expect("microseconds");
    assert!((200_000..2_000_000).contains(&slept), "{slept}");
    let sent: u64 = stat("total_sent").parse().expect("bytes");
    assert!(sent > 100);
}

#[test]
fn the_configuration_as_it_is() {
    howdah_only!("settings came and went since 1.18");
    let world = World::with(7, |setup| setup.set("query_wait_timeout", "1.5"));
    let config =
        |key: &str, column: &str| world.howdah.cell("SHOW CONFIG", &[("key", key)], column);
    assert_eq!(config("default_pool_size", "value"), "7");
    assert_eq!(config("default_pool_size", "default"), "20");
    assert_eq!(config("default_pool_size", "changeable"), "yes");
    assert_eq!(config("listen_port", "changeable"), "no");
    assert_eq!(config("query_wait_timeout", "value"), "1.5");
    assert_eq!(config("pool_mode", "value"), "transaction");
    let keys = world.howdah.order("SHOW CONFIG").column();
    let pgbouncers =
        keys.iter().filter(|key| !["workers", "io_driver"].contains(&key.as_str())).count();
    assert!(pgbouncers >= 100, "{pgbouncers} of PgBouncer's settings are listed");
}

#[test]
fn old_columns_come_last_and_only_when_asked_for() {
    howdah_only!("a setting of ours");
    let world = World::with(1, |setup| setup.set("console_old_columns", 1));
    let mut client = world.client();
    client.run("SELECT 1");
    for (view, old) in [("STATS", "total_requests:n"), ("DATABASES", "reserve_pool:i")] {
        let (_, columns) = VIEWS.iter().find(|(name, _)| *name == view).expect("a view");
        let mut wanted: Vec<_> = columns.split_whitespace().map(str::to_owned).collect();
        wanted.push(old.to_owned());
        assert_eq!(shape(&world.howdah.console(&format!("SHOW {view}"))), wanted, "{view}");
    }
    let count = |column| world.howdah.rows("SHOW STATS", &[("database", "shop")], column);
    assert_eq!(count("total_requests"), count("total_query_count"));
    world.howdah.order("SET console_old_columns = 0");
    let shape = shape(&world.howdah.console("SHOW STATS"));
    assert!(!shape.contains(&"total_requests:n".to_owned()), "{shape:?}");
}
