//! What clients do that concerns their sessions, counted for SHOW SESSION_REPORT.

use std::collections::BTreeMap;
use std::sync::Arc;

use admin::{ReportFacts, ReportRow};
use io::Driver;
use session::{Kind, Sight, Tie};

use crate::room::Room;
use crate::worker::Worker;
use crate::world::World;

/// What was seen in one pool.
#[derive(Default)]
pub(crate) struct Report {
    /// By kind and statement; [`OTHER`] is all that there was no room for.
    entries: BTreeMap<(Kind, u64), Entry>,
}

struct Entry {
    statement: Arc<str>,
    count: u64,
    clients: u64,
    /// Unix time, in seconds.
    first: i64,
    last: i64,
    /// Of the client that did it last.
    application: Box<str>,
}

/// Statements of one pool that one worker tells apart.
const STATEMENTS_MAX: usize = 500;

/// The number of what there is no room for, or need to tell apart.
const OTHER: u64 = 0;

impl Report {
    /// Where this is counted: in a row of its own as long as there is room.
    fn entry(&mut self, sight: &Sight, now: i64) -> (u64, &mut Entry) {
        let known = self.entries.contains_key(&(sight.kind, sight.number));
        let has_room = known || self.entries.len() < STATEMENTS_MAX;
        let number = if has_room { sight.number } else { OTHER };
        let entry = self.entries.entry((sight.kind, number)).or_insert_with(|| Entry {
            statement: if has_room || sight.number == OTHER {
                sight.statement.clone()
            } else {
                "(other statements)".into()
            },
            count: 0,
            clients: 0,
            first: now,
            last: now,
            application: Box::default(),
        });
        (number, entry)
    }
}

impl<D: Driver, W: World> Worker<D, W> {
    /// Enter what `slot` did, as the relay has just seen it.
    pub(crate) fn report(&mut self, slot: Option<u32>) {
        let harmless = std::mem::take(&mut self.flow.harmless);
        if harmless == 0 && self.flow.sights.is_empty() {
            return;
        }
        let sights = std::mem::take(&mut self.flow.sights);
        let Some(slot) = slot else { return };
        if harmless > 0 {
            let nothing = Sight { kind: Kind::Nothing, number: OTHER, statement: "".into() };
            self.enter(slot, &nothing, harmless);
        }
        for sight in sights.iter().flat_map(|sights| sights.iter()) {
            self.enter(slot, sight, 1);
        }
    }

    /// `slot` is tied to `entry` by what its text did not show: that is what it would be tied by elsewhere.
    pub(crate) fn report_tie(&mut self, slot: u32, entry: u32, tie: Tie) {
        let Some(client) = self.clients.get(slot as usize) else { return };
        let trail = &self.servers[entry as usize].side.trail;
        let reports = self.room(client.pool).is_some_and(|room| room.rules.reports);
        if !reports || trail.is_shown(tie) || tie == Tie::Unknown {
            return;
        }
        let text = match trail.culprit() {
            [] => b"(what no text shows: a trigger, a view, a rule)",
            culprit => culprit,
        };
        let sight = session::of_kind(Kind::of(tie), text);
        self.enter(slot, &sight, 1);
    }

    fn enter(&mut self, slot: u32, sight: &Sight, count: u64) {
        let wall = self.world.wall_us() / 1_000_000;
        let Some(client) = self.clients.get_mut(slot as usize) else { return };
        let Some(Some(room)) = self.rooms.get_mut(client.pool.0 as usize) else { return };
        let report = room.report.get_or_insert_default();
        let (number, entry) = report.entry(sight, wall);
        entry.count += count;
        entry.last = wall;
        entry.clients += u64::from(client.side.is_first(self.report_number, sight.kind, number));
        let application = client.side.vars.value(b"application_name").unwrap_or_default();
        if entry.application.as_bytes() != application {
            entry.application = String::from_utf8_lossy(application).into();
        }
    }

    /// RESET SESSION_REPORT: begin anew.
    pub(crate) fn forget_report(&mut self) {
        self.report_number += 1;
        for room in self.rooms.iter_mut().flatten() {
            room.report = None;
        }
    }

    pub(crate) fn report_facts(&self) -> BTreeMap<ReportRow, ReportFacts> {
        let hub = self.site.config.settings.listen_hub;
        self.rooms.iter().flatten().flat_map(|room| rows(room, hub)).collect()
    }
}

fn rows(room: &Room, hub: bool) -> impl Iterator<Item = (ReportRow, ReportFacts)> {
    let entries = room.report.iter().flat_map(|report| &report.entries);
    entries.map(move |((kind, number), entry)| {
        let row = ReportRow {
            database: room.name.to_string(),
            user: room.user.to_string(),
            kind: kind.words(),
            number: *number,
        };
        let fate = kind.fate(&room.rules, hub);
        let facts = ReportFacts {
            gravity: fate as u8,
            verdict: fate.word(),
            statement: entry.statement.to_string(),
            count: entry.count,
            clients: entry.clients,
            first_seen: entry.first,
            last_seen: entry.last,
            application_name: entry.application.to_string(),
            advice: kind.advice(&room.rules, hub),
        };
        (row, facts)
    })
}
