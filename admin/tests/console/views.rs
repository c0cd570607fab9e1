//! What every view shows: its columns as PgBouncer's, and its rows.

use std::collections::BTreeMap;

use admin::{
    Address, ClientFacts, ClientState, ConfigRow, DatabaseFacts, DnsHostFacts, DnsZoneFacts, Facts,
    FdFacts, MemoryFacts, Need, PauseState, PeerFacts, PeerPoolFacts, PoolFacts, PoolName,
    Positions, Replication, Role, ServerFacts, ServerState, SocketFacts, StatsFacts, UserFacts,
    View, Zone,
};
use metrics::{Counters, History};

use crate::talk::Talk;

const SOCKET: &str = "type t, user t, database t, replication t, state t, addr t, port i, \
    local_addr t, local_port i, connect_time t, request_time t, wait i, wait_us i, close_needed i, \
    ptr t, link t, remote_pid i, tls t, application_name t, prepared_statements i, id i";
const BUFFERS: &str = ", recv_pos i, pkt_pos i, pkt_remain i, send_pos i, send_remain i, \
    pkt_avail i, send_avail i";

/// Ours alone.
const PINS: &str = "database t, user t, application_name t, client_id i, server_id i, \
    server_pid i, reasons t, statement t, since t";

/// As PgBouncer answers: t text, i int4, q int8, N numeric, b bytea.
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn wanted() -> BTreeMap<&'static str, String> {
    let sockets = format!("{SOCKET}{BUFFERS}");
    let pinnable = format!("{SOCKET}, pin_reasons t, pinned_since t");
    let lists = [
        (
            "DATABASES",
            "name t, host t, port i, database t, force_user t, pool_size i, min_pool_size i, \
             reserve_pool_size i, server_lifetime i, pool_mode t, load_balance_hosts t, \
             max_connections i, current_connections i, max_client_connections i, \
             current_client_connections i, paused i, disabled i",
        ),
        (
            "POOLS",
            "database t, user t, cl_active i, cl_waiting i, cl_active_cancel_req i, \
             cl_waiting_cancel_req i, sv_active i, sv_active_cancel i, sv_being_canceled i, \
             sv_idle i, sv_used i, sv_tested i, sv_login i, maxwait i, maxwait_us i, pool_mode t, \
             load_balance_hosts t",
        ),
        (
            "PEER_POOLS",
            "peer_id i, cl_active_cancel_req i, cl_waiting_cancel_req i, sv_active_cancel i, \
             sv_login i",
        ),
        ("PEERS", "peer_id i, host t, port i, pool_size i"),
        ("PINS", PINS),
        (
            "SESSION_REPORT",
            "database t, user t, verdict t, kind t, statement t, count q, clients q, first_seen t, \
             last_seen t, application_name t, advice t",
        ),
        ("LISTENERS", "database t, user t, channel t, clients q, delivered q"),
        (
            "PIN_TOTALS",
            "database t, user t, reason t, pinned q, total_pins q, total_pin_time q, longest_pin q, \
             warnings q, refused q, unset q",
        ),
        ("CLIENTS", &pinnable),
        ("SERVERS", &pinnable),
        ("SOCKETS", &sockets),
        ("ACTIVE_SOCKETS", &sockets),
        ("LISTS", "list t, items i"),
        (
            "USERS",
            "name t, pool_size t, reserve_pool_size t, pool_mode t, max_user_connections i, \
             current_connections i, max_user_client_connections i, current_client_connections i",
        ),
        (
            "STATS",
            "database t, total_server_assignment_count N, total_xact_count N, total_query_count N, \
             total_received N, total_sent N, total_xact_time N, total_query_time N, \
             total_wait_time N, total_client_parse_count N, total_server_parse_count N, \
             total_bind_count N, total_client_login_count N, avg_server_assignment_count N, \
             avg_xact_count N, avg_query_count N, avg_recv N, avg_sent N, avg_xact_time N, \
             avg_query_time N, avg_wait_time N, avg_client_parse_count N, avg_server_parse_count N, \
             avg_bind_count N, avg_client_login_count N",
        ),
        (
            "STATS_TOTALS",
            "database t, server_assignment_count N, xact_count N, query_count N, bytes_received N, \
             bytes_sent N, xact_time N, query_time N, wait_time N, client_parse_count N, \
             server_parse_count N, bind_count N, client_login_count N",
        ),
        (
            "STATS_AVERAGES",
            "database t, server_assignment_count N, xact_count N, query_count N, bytes_received N, \
             bytes_sent N, xact_time N, query_time N, wait_time N, avg_client_parse_count N, \
             avg_server_parse_count N, avg_bind_count N, avg_client_login_count N",
        ),
        ("TOTALS", "name t, value N"),
        ("CONFIG", "key t, value t, default t, changeable t"),
        ("VERSION", "version t"),
        ("STATE", "key t, value t"),
        ("MEM", "name t, size i, used i, free i, memtotal i"),
        ("DNS_HOSTS", "hostname t, ttl q, addrs t"),
        ("DNS_ZONES", "zonename t, serial q, count i"),
        (
            "FDS",
            "fd i, task t, user t, database t, addr t, port i, cancel q, link i, \
             client_encoding t, std_strings t, datestyle t, timezone t, password t, \
             scram_client_key b, scram_server_key b",
        ),
        ("HELP", ""),
    ];
    lists.into_iter().map(|(view, columns)| (view, columns.to_owned())).collect()
}

/// `name t` as a row description says it.
fn on_the_wire(columns: &str) -> String {
    let columns = columns.split(", ").map(|column| {
        let (name, kind) = column.split_once(' ').expect("a name and a kind");
        let kind = match kind {
            "t" => "25/-1",
            "i" => "23/4",
            "q" => "20/8",
            "N" => "1700/-1",
            "b" => "17/-1",
            _ => panic!("{column}"),
        };
        format!("{name}:{kind}/0")
    });
    format!("T {}", columns.collect::<Vec<_>>().join(" "))
}

#[test]
fn every_view_has_the_columns_that_pgbouncer_has() {
    let wanted = wanted();
    assert_eq!(wanted.len(), View::all().count());
    for view in View::all() {
        let columns = &wanted[view.word()];
        let heard = Talk::new(Role::Admin).query(&format!("SHOW {}", view.word()));
        if columns.is_empty() {
            assert!(heard[0].starts_with("N "), "{heard:?}");
        } else {
            assert_eq!(heard[0], on_the_wire(columns), "{}", view.word());
        }
        assert_eq!(heard[heard.len() - 2..], ["C SHOW", "Z I"], "{}", view.word());
    }
}

fn rows(view: &str, facts: Facts) -> Vec<String> {
    let mut talk = Talk::new(Role::Admin);
    talk.facts = facts;
    let heard = talk.query(&format!("show {view}"));
    heard.iter().filter_map(|line| line.strip_prefix("D ")).map(str::to_owned).collect()
}

fn socket<State>(state: State, id: u64) -> SocketFacts<State> {
    SocketFacts {
        state,
        user: Some("app".to_owned()),
        database: Some("shop".to_owned()),
        replication: Replication::None,
        addr: Address { ip: Some([127, 0, 0, 1].into()), port: 40_000 },
        local: Address { ip: Some([0u16; 8].into()), port: 6432 },
        connect_time: 1_782_900_000,
        request_time: 1_782_900_061,
        wait_us: 0,
        close_needed: false,
        ptr: 0xc0de,
        link: None,
        remote_pid: 0,
        tls: String::new(),
        application_name: String::new(),
        prepared_statements: 0,
        id,
        pin: None,
        positions: Positions::default(),
    }
}

fn sockets() -> Facts {
    let clients = vec![
        ClientFacts {
            wait_us: 2_500_001,
            tls: "TLSv1.3/TLS_AES_256_GCM_SHA384".to_owned(),
            application_name: "psql".to_owned(),
            ..socket(ClientState::Waiting, 9)
        },
        ClientFacts {
            addr: Address { ip: None, port: 6432 },
            remote_pid: 77,
            link: Some(0xbeef),
            prepared_statements: 3,
            positions: Positions { recv_pos: 5, pkt_avail: 2, ..Positions::default() },
            ..socket(ClientState::Active, 2)
        },
        socket(ClientState::Idle, 4),
        ClientFacts { user: None, database: None, ..socket(ClientState::Login, 5) },
        ClientFacts { user: None, ..socket(ClientState::WaitingCancel, 6) },
    ];
    let servers = vec![
        ServerFacts { close_needed: true, ..socket(ServerState::Used, 8) },
        ServerFacts { replication: Replication::Logical, ..socket(ServerState::Active, 3) },
        socket(ServerState::New, 10),
        socket(ServerState::BeingCanceled, 11),
    ];
    let zone = Zone { offset_s: 7200, name: "CEST".to_owned() };
    Facts { clients, servers, zone, ..Facts::default() }
}

#[test]
fn clients_are_shown_with_all_that_is_known_of_them() {
    let time = "2026-07-01 12:00:00 CEST|2026-07-01 12:01:01 CEST";
    let tls = "TLSv1.3/TLS_AES_256_GCM_SHA384";
    assert_eq!(
        rows("clients", sockets()),
        [
            format!(
                "C|(nouser)|shop|none|waiting_cancel_req|127.0.0.1|40000|::|6432|{time}|0|0|0|\
                 0xc0de||0|||0|6||"
            ),
            format!(
                "C|app|shop|none|active|unix|6432|::|6432|{time}|0|0|0|0xc0de|0xbeef|77|||3|2||"
            ),
            format!("C|app|shop|none|idle|127.0.0.1|40000|::|6432|{time}|0|0|0|0xc0de||0|||0|4||"),
            format!(
                "C|app|shop|none|waiting|127.0.0.1|40000|::|6432|{time}|2|500001|0|0xc0de||0|\
                 {tls}|psql|0|9||"
            ),
        ]
    );
}

#[test]
fn servers_are_shown_in_the_order_of_their_states() {
    let states: Vec<_> = rows("servers", sockets())
        .iter()
        .map(|row| {
            row.split('|')
                .enumerate()
                .filter(|(at, _)| [0, 3, 4, 13, 20].contains(at))
                .map(|(_, value)| value.to_owned())
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    assert_eq!(
        states,
        [
            "S logical active 0 3",
            "S none used 1 8",
            "S none new 0 10",
            "S none being_canceled 0 11"
        ]
    );
}

/// Cancel requests are not among them, and idle clients are active.
#[test]
fn sockets_have_states_of_their_own() {
    let states = |view: &str| -> Vec<String> {
        let state = |row: &String| row.split('|').nth(4).map(str::to_owned);
        rows(view, sockets()).iter().filter_map(state).collect()
    };
    let all =
        ["cl_login", "cl_active", "cl_active", "cl_waiting", "sv_active", "sv_used", "sv_login"];
    assert_eq!(states("sockets"), all);
    assert_eq!(states("active_sockets"), ["cl_active"]);
    assert!(rows("active_sockets", sockets())[0].ends_with("|2|5|0|0|0|0|2|0"));
    assert!(rows("sockets", sockets())[0].starts_with("C|(nouser)|(nodb)|none|cl_login|"));
}

#[test]
fn the_consoles_own_database_and_pool_are_shown_as_pgbouncer_shows_them() {
    let mut facts = Facts::default();
    facts.databases.insert("pgbouncer".to_owned(), DatabaseFacts::console(6432, 3600));
    let shop = DatabaseFacts {
        host: Some("a,b".to_owned()),
        port: 5432,
        database: "shop_1".to_owned(),
        pool_size: 20,
        min_pool_size: 1,
        reserve_pool_size: 2,
        server_lifetime_s: 60,
        load_balance_hosts: Some("round-robin"),
        max_connections: 30,
        current_connections: 4,
        max_client_connections: 50,
        current_client_connections: 6,
        paused: true,
        ..DatabaseFacts::default()
    };
    facts.databases.insert("shop".to_owned(), shop);
    let own = PoolName { database: "pgbouncer".to_owned(), user: "pgbouncer".to_owned() };
    facts.pools.insert(own, PoolFacts::console(1));
    assert_eq!(
        rows("databases", facts.clone()),
        [
            "pgbouncer|NULL|6432|pgbouncer|pgbouncer|2|0|0|3600|statement|NULL|0|0|0|0|0|0",
            "shop|a,b|5432|shop_1|NULL|20|1|2|60|NULL|round-robin|30|4|50|6|1|0",
        ]
    );
    assert_eq!(
        rows("pools", facts),
        ["pgbouncer|pgbouncer|1|0|0|0|0|0|0|0|0|0|0|0|0|statement|NULL"]
    );
}

fn pool(cl_waiting: usize, maxwait_us: u64) -> PoolFacts {
    PoolFacts {
        cl_active: 1,
        cl_waiting,
        cl_active_cancel_req: 1,
        cl_waiting_cancel_req: 2,
        sv_active: 3,
        sv_active_cancel: 4,
        sv_being_canceled: 5,
        sv_idle: 6,
        sv_used: 7,
        sv_tested: 8,
        sv_login: 9,
        maxwait_us,
        pool_mode: "transaction",
        load_balance_hosts: Some("disable"),
    }
}

fn worker(cl_waiting: usize, maxwait_us: u64) -> Facts {
    let mut facts = sockets();
    let name = PoolName { database: "shop".to_owned(), user: "app".to_owned() };
    facts.pools.insert(name, pool(cl_waiting, maxwait_us));
    let stats = StatsFacts {
        total: Counters { bytes_sent: u64::MAX / 2 + 1, xact_count: 1, ..Counters::default() },
        history: History::default(),
    };
    facts.stats.insert("shop".to_owned(), stats);
    let peers = PeerPoolFacts { cl_active_cancel_req: 1, sv_login: 2, ..Default::default() };
    facts.peer_pools.insert(7, peers);
    let user = UserFacts { pool_size: Some(5), current_connections: 2, ..UserFacts::default() };
    facts.users.insert("app".to_owned(), user);
    let memory = MemoryFacts { size: 100, used: 3, free: 1 };
    facts.memory.insert(admin::Cache::Client, memory);
    facts.lists.used_clients = 3;
    facts
}

/// One pool on two workers is one row: counts add up, the longest wait counts.
#[test]
fn workers_add_up() {
    let mut facts = worker(2, 3_000_007);
    facts.merge(worker(1, 1));
    facts.merge(Facts { state: PauseState::Paused, ..Facts::default() });
    assert_eq!(
        rows("pools", facts.clone()),
        ["shop|app|2|3|2|4|6|8|10|12|14|16|18|3|7|transaction|disable"]
    );
    assert_eq!(rows("peer_pools", facts.clone()), ["7|2|0|0|4"]);
    assert_eq!(rows("users", facts.clone()), ["app|        5||NULL|0|4|0|0"]);
    assert_eq!(rows("clients", facts.clone()).len(), 8);
    assert_eq!(rows("state", facts.clone()), ["active|no", "paused|yes", "suspended|no"]);
    let mem = rows("mem", facts.clone());
    assert_eq!((mem.len(), mem[8].as_str()), (12, "client_cache|100|6|2|800"));
    let totals = rows("totals", facts.clone());
    assert_eq!(totals.len(), 24);
    assert_eq!(totals[1], "total_xact_count|2");
    // Wider than int8, and at the end of what we count with.
    assert_eq!(totals[4], format!("total_server_bytes|{}", u64::MAX));
    let lists = rows("lists", facts);
    assert_eq!(
        lists,
        [
            "databases|0",
            "users|1",
            "peers|0",
            "pools|1",
            "peer_pools|1",
            "free_clients|0",
            "used_clients|6",
            "login_clients|0",
            "free_servers|0",
            "used_servers|0",
            "dns_names|0",
            "dns_zones|0",
            "dns_queries|0",
            "dns_pending|0",
        ]
    );
}

#[test]
fn stats_are_totals_and_then_averages() {
    let total = Counters {
        server_assignment_count: 120,
        xact_count: 60,
        query_count: 180,
        bytes_received: 6_000,
        bytes_sent: 60_000,
        xact_time_us: 600_000,
        query_time_us: 900_000,
        wait_time_us: 2_400,
        client_parse_count: 240,
        server_parse_count: 300,
        bind_count: 360,
        client_login_count: 420,
    };
    let mut history = History::new(0);
    history.turn(&total, 60_000_000);
    let mut facts = Facts::default();
    facts.stats.insert("shop".to_owned(), StatsFacts { total, history });
    let totals = "120|60|180|6000|60000|600000|900000|2400|240|300|360|420";
    let averages = "2|1|3|100|1000|10000|5000|20|4|5|6|7";
    assert_eq!(rows("stats", facts.clone()), [format!("shop|{totals}|{averages}")]);
    assert_eq!(rows("stats_totals", facts.clone()), [format!("shop|{totals}")]);
    assert_eq!(rows("stats_averages", facts.clone()), [format!("shop|{averages}")]);
    let names: Vec<_> = rows("totals", facts)
        .iter()
        .filter_map(|row| row.split_once('|').map(|(name, _)| name.to_owned()))
        .collect();
    let base = "server_assignment_count xact_count query_count client_bytes server_bytes \
        xact_time query_time wait_time ps_client_parse_count ps_server_parse_count ps_bind_count \
        client_login_count";
    let wanted: Vec<_> = ["total", "avg"]
        .iter()
        .flat_map(|prefix| base.split(' ').map(move |name| format!("{prefix}_{name}")))
        .collect();
    assert_eq!(names, wanted);
}

#[test]
fn the_small_views() {
    let mut facts = Facts::default();
    facts.peers.insert(3, PeerFacts { host: Some("/tmp".to_owned()), port: 6432, pool_size: 20 });
    let v6 = "::1".parse().expect("an address");
    let addrs = vec![[10, 0, 0, 1].into(), v6];
    facts.dns_hosts.insert("db.local".to_owned(), DnsHostFacts { ttl_s: 14, addrs });
    facts.dns_zones.insert("local".to_owned(), DnsZoneFacts { serial: u32::MAX, count: 1 });
    facts.config = vec![
        ConfigRow { key: "auth_user", value: None, default: None, changeable: true },
        ConfigRow {
            key: "pkt_buf",
            value: Some("8192".to_owned()),
            default: Some("4096".to_owned()),
            changeable: false,
        },
    ];
    facts.fds = vec![FdFacts { fd: 7, task: "pooler", ..FdFacts::default() }];
    assert_eq!(rows("peers", facts.clone()), ["3|/tmp|6432|20"]);
    assert_eq!(rows("dns_hosts", facts.clone()), ["db.local|14|10.0.0.1:0,[::1]:0"]);
    assert_eq!(rows("dns_zones", facts.clone()), ["local|4294967295|1"]);
    assert_eq!(rows("config", facts.clone()), ["auth_user|NULL|NULL|yes", "pkt_buf|8192|4096|no"]);
    assert_eq!(rows("state", facts.clone()), ["active|yes", "paused|no", "suspended|no"]);
    assert_eq!(rows("version", facts.clone()), ["PgBouncer 1.25.2"]);
    let fds = ["7|pooler|NULL|NULL|unix|0|0|0|NULL|NULL|NULL|NULL|NULL|NULL|NULL"];
    assert_eq!(rows("fds", facts), fds);
}

/// A worker is not asked for thousands of clients to show a version.
#[test]
fn views_ask_only_for_what_they_show() {
    assert_eq!(View::Version.needs(), []);
    assert_eq!(View::Help.needs(), []);
    assert_eq!(View::Pools.needs(), [Need::Pools]);
    assert_eq!(View::Sockets.needs(), [Need::Clients, Need::Servers]);
    for view in View::all() {
        let none = matches!(view, View::Version | View::Help);
        assert_eq!(view.needs().is_empty(), none, "{view:?}");
    }
}
