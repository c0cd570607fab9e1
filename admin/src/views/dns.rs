//! SHOW DNS_HOSTS and SHOW DNS_ZONES.

use std::net::SocketAddr;

use super::{Need, Sheet, View};
use crate::Role;
use crate::cell::{int4, int8, text};

pub(super) const DNS_HOSTS: Sheet = Sheet {
    view: View::DnsHosts,
    word: "DNS_HOSTS",
    who: Role::Stats,
    needs: &[Need::Dns],
    columns: &[text("hostname"), int8("ttl"), text("addrs")],
    rows: |facts, rows| {
        for (name, host) in &facts.dns_hosts {
            // PgBouncer prints each with the port it was looked up with, which is none.
            let addrs = host.addrs.iter().map(|ip| SocketAddr::new(*ip, 0).to_string());
            let addrs = addrs.collect::<Vec<_>>().join(",");
            rows.push(&[name.into(), host.ttl_s.into(), addrs.into()]);
        }
    },
    about: "Host names that are known, for how many seconds yet, and their addresses.",
};

pub(super) const DNS_ZONES: Sheet = Sheet {
    view: View::DnsZones,
    word: "DNS_ZONES",
    who: Role::Stats,
    needs: &[Need::Dns],
    columns: &[text("zonename"), int8("serial"), int4("count")],
    rows: |facts, rows| {
        for (name, zone) in &facts.dns_zones {
            rows.push(&[name.into(), zone.serial.into(), zone.count.into()]);
        }
    },
    about: "Zones whose serial is watched, and how many host names are in them.",
};
