//! SHOW CLIENTS, SERVERS, SOCKETS and ACTIVE_SOCKETS: connections, one a row.

use super::{Need, Sheet, View, seconds};
use crate::Role;
use crate::cell::{Cell, Column, Rows, int4, text};
use crate::facts::{
    Address, ClientState, Facts, Positions, Replication, ServerState, SocketFacts, Zone,
};

pub(super) const CLIENTS: Sheet = Sheet {
    view: View::Clients,
    word: "CLIENTS",
    who: Role::Stats,
    needs: &[Need::Clients],
    columns: &WITH_PIN,
    rows: |facts, rows| {
        for client in sorted(&facts.clients) {
            if let Some(state) = client_state(client.state) {
                rows.push(&with_pin(cells(client, "C", state, &facts.zone), client, &facts.zone));
            }
        }
    },
    about: "The clients that are logged in.",
};

pub(super) const SERVERS: Sheet = Sheet {
    view: View::Servers,
    word: "SERVERS",
    who: Role::Stats,
    needs: &[Need::Servers],
    columns: CLIENTS.columns,
    rows: |facts, rows| {
        for server in sorted(&facts.servers) {
            let cells = cells(server, "S", server_state(server.state), &facts.zone);
            rows.push(&with_pin(cells, server, &facts.zone));
        }
    },
    about: "The connections to servers.",
};

pub(super) const SOCKETS: Sheet = Sheet {
    view: View::Sockets,
    word: "SOCKETS",
    who: Role::Stats,
    needs: &[Need::Clients, Need::Servers],
    columns: COLUMNS,
    rows: |facts, rows| show_sockets(facts, rows, |_| true),
    about: "Clients, servers, and what lies in their buffers.",
};

pub(super) const ACTIVE_SOCKETS: Sheet = Sheet {
    view: View::ActiveSockets,
    word: "ACTIVE_SOCKETS",
    who: Role::Stats,
    needs: &[Need::Clients, Need::Servers],
    columns: COLUMNS,
    rows: |facts, rows| show_sockets(facts, rows, |positions| *positions != Positions::default()),
    about: "The connections that have something in their buffers.",
};

/// How many of the columns SHOW CLIENTS and SHOW SERVERS have.
const PLAIN: usize = 21;

/// Those, and two of their own.
const WITH_PIN: [Column; PLAIN + 2] = {
    let mut columns = [text("pin_reasons"); PLAIN + 2];
    let mut at = 0;
    while at < PLAIN {
        columns[at] = COLUMNS[at];
        at += 1;
    }
    columns[PLAIN + 1] = text("pinned_since");
    columns
};

const COLUMNS: &[Column] = &[
    text("type"),
    text("user"),
    text("database"),
    text("replication"),
    text("state"),
    text("addr"),
    int4("port"),
    text("local_addr"),
    int4("local_port"),
    text("connect_time"),
    text("request_time"),
    int4("wait"),
    int4("wait_us"),
    int4("close_needed"),
    text("ptr"),
    text("link"),
    int4("remote_pid"),
    text("tls"),
    text("application_name"),
    int4("prepared_statements"),
    int4("id"),
    int4("recv_pos"),
    int4("pkt_pos"),
    int4("pkt_remain"),
    int4("send_pos"),
    int4("send_remain"),
    int4("pkt_avail"),
    int4("send_avail"),
];

fn show_sockets(facts: &Facts, rows: &mut Rows<'_>, wanted: fn(&Positions) -> bool) {
    for client in sorted(&facts.clients).filter(|client| wanted(&client.positions)) {
        if let Some(state) = client_socket_state(client.state) {
            rows.push(&with_positions(cells(client, "C", state, &facts.zone), &client.positions));
        }
    }
    for server in sorted(&facts.servers).filter(|server| wanted(&server.positions)) {
        if let Some(state) = server_socket_state(server.state) {
            rows.push(&with_positions(cells(server, "S", state, &facts.zone), &server.positions));
        }
    }
}

/// By database, user, state and age.
fn sorted<State: Copy + Ord>(
    sockets: &[SocketFacts<State>],
) -> impl Iterator<Item = &SocketFacts<State>> {
    let mut sorted: Vec<_> = sockets.iter().collect();
    sorted.sort_by(|a, b| {
        (&a.database, &a.user, a.state, a.id).cmp(&(&b.database, &b.user, b.state, b.id))
    });
    sorted.into_iter()
}

fn cells<'a, State>(
    socket: &'a SocketFacts<State>,
    side: &'static str,
    state: &'static str,
    zone: &Zone,
) -> Vec<Cell<'a>> {
    let [wait, wait_us] = seconds(socket.wait_us);
    vec![
        side.into(),
        socket.user.as_deref().unwrap_or("(nouser)").into(),
        socket.database.as_deref().unwrap_or("(nodb)").into(),
        replication(socket.replication).into(),
        state.into(),
        ip(&socket.addr).into(),
        socket.addr.port.into(),
        ip(&socket.local).into(),
        socket.local.port.into(),
        zone.time(socket.connect_time).into(),
        zone.time(socket.request_time).into(),
        wait.into(),
        wait_us.into(),
        socket.close_needed.into(),
        format!("{:#x}", socket.ptr).into(),
        socket.link.map_or_else(String::new, |link| format!("{link:#x}")).into(),
        socket.remote_pid.into(),
        (&socket.tls).into(),
        (&socket.application_name).into(),
        socket.prepared_statements.into(),
        socket.id.into(),
    ]
}

fn with_pin<'a, State>(
    mut cells: Vec<Cell<'a>>,
    socket: &'a SocketFacts<State>,
    zone: &Zone,
) -> Vec<Cell<'a>> {
    let pin = socket.pin.as_ref();
    cells.push(pin.map_or("", |pin| pin.reasons.as_str()).into());
    cells.push(pin.map_or_else(String::new, |pin| zone.time(pin.since)).into());
    cells
}

fn with_positions<'a>(mut cells: Vec<Cell<'a>>, positions: &Positions) -> Vec<Cell<'a>> {
    cells.extend([
        positions.recv_pos.into(),
        positions.pkt_pos.into(),
        positions.pkt_remain.into(),
        positions.send_pos.into(),
        positions.send_remain.into(),
        positions.pkt_avail.into(),
        positions.send_avail.into(),
    ]);
    cells
}

pub(super) fn ip(address: &Address) -> String {
    address.ip.map_or_else(|| "unix".to_owned(), |ip| ip.to_string())
}

fn replication(replication: Replication) -> &'static str {
    match replication {
        Replication::None => "none",
        Replication::Logical => "logical",
        Replication::Physical => "physical",
    }
}

/// In SHOW CLIENTS; `None` for who is not shown there.
fn client_state(state: ClientState) -> Option<&'static str> {
    Some(match state {
        ClientState::Active => "active",
        ClientState::Idle => "idle",
        ClientState::Waiting => "waiting",
        ClientState::ActiveCancel => "active_cancel_req",
        ClientState::WaitingCancel => "waiting_cancel_req",
        ClientState::Login => return None,
    })
}

/// In SHOW SOCKETS, which knows no cancel requests, and does not tell idle clients from active ones.
fn client_socket_state(state: ClientState) -> Option<&'static str> {
    Some(match state {
        ClientState::Active | ClientState::Idle => "cl_active",
        ClientState::Waiting => "cl_waiting",
        ClientState::Login => "cl_login",
        ClientState::ActiveCancel | ClientState::WaitingCancel => return None,
    })
}

fn server_state(state: ServerState) -> &'static str {
    match state {
        ServerState::Active => "active",
        ServerState::Idle => "idle",
        ServerState::Used => "used",
        ServerState::Tested => "tested",
        ServerState::New => "new",
        ServerState::ActiveCancel => "active_cancel",
        ServerState::BeingCanceled => "being_canceled",
    }
}

/// In SHOW SOCKETS, which knows no cancel requests.
fn server_socket_state(state: ServerState) -> Option<&'static str> {
    Some(match state {
        ServerState::Active => "sv_active",
        ServerState::Idle => "sv_idle",
        ServerState::Used => "sv_used",
        ServerState::Tested => "sv_tested",
        ServerState::New => "sv_login",
        ServerState::ActiveCancel | ServerState::BeingCanceled => return None,
    })
}

impl Zone {
    /// `2026-07-01 12:00:00 CEST`.
    pub(super) fn time(&self, unix_s: i64) -> String {
        const DAY_S: i64 = 86_400;
        let local_s = unix_s.saturating_add(self.offset_s.into());
        let (year, month, day) = date(local_s.div_euclid(DAY_S));
        let second = local_s.rem_euclid(DAY_S);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        let name = &self.name;
        format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} {name}")
    }
}

/// Year, month and day of a day counted from 1970. Years are counted from March, so that the leap
/// day is a year's last; 400 of them repeat for ever.
fn date(day: i64) -> (i64, i64, i64) {
    const DAYS_400_YEARS: i64 = 146_097;
    const DAYS_TO_1970: i64 = 719_468;
    let day = day.saturating_add(DAYS_TO_1970);
    let era = day.div_euclid(DAYS_400_YEARS);
    let day = day.rem_euclid(DAYS_400_YEARS);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day_of_month = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next, month, day_of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_local_and_name_their_zone() {
        let utc = Zone::default();
        assert_eq!(utc.time(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc.time(951_782_399), "2000-02-28 23:59:59 UTC");
        assert_eq!(utc.time(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc.time(1_735_689_599), "2024-12-31 23:59:59 UTC");
        assert_eq!(utc.time(4_107_542_400), "2100-03-01 00:00:00 UTC");
        assert_eq!(utc.time(-1), "1969-12-31 23:59:59 UTC");
        let berlin = Zone { offset_s: 7200, name: "CEST".to_owned() };
        assert_eq!(berlin.time(1_782_900_000), "2026-07-01 12:00:00 CEST");
    }

    #[test]
    fn no_time_is_too_far() {
        let zone = Zone { offset_s: i32::MAX, name: String::new() };
        for unix_s in [i64::MIN, i64::MAX] {
            assert!(!zone.time(unix_s).is_empty());
        }
    }
}
