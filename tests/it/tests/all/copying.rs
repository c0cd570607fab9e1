//! COPY in every direction, and everything that can go wrong on the way: bug class B9.

use harness::say::{bind, copy_data, copy_done, copy_fail, execute, flush, parse, query, sync};
use harness::{Oracle, Raw, Until, World, eventually};

/// An oracle with a table on both sides.
fn oracle() -> Oracle {
    let mut oracle = Oracle::new().torn();
    oracle.query("CREATE TABLE t (n int)");
    oracle
}

/// COPY has begun by simple query.
fn begin(oracle: &mut Oracle) {
    oracle.step("COPY t FROM STDIN", &query("COPY t FROM STDIN"), Until::Tag(b'G'));
}

const GOOD: &[u8] = b"1\n2\n3\n";
const BAD: &[u8] = b"not a number\n";

#[test]
fn b09_copy_in() {
    let mut oracle = oracle();
    for _ in 0..5 {
        begin(&mut oracle);
        oracle.step(
            "data",
            &[copy_data(GOOD), copy_data(b"4\n"), copy_done()].concat(),
            Until::Ready(1),
        );
        oracle.query("SELECT count(*) FROM t");
    }
    begin(&mut oracle);
    oracle.step(
        "a row over two messages",
        &[copy_data(b"12"), copy_data(b"34\n"), copy_done()].concat(),
        Until::Ready(1),
    );
    begin(&mut oracle);
    oracle.step("nothing at all", &copy_done(), Until::Ready(1));
    oracle.end();
}

#[test]
fn b09_a_query_behind_a_copy_in_one_flight() {
    howdah_only!("the yardstick lets go of the server after the copy");
    let mut oracle = oracle();
    let at_once =
        [query("COPY t FROM STDIN"), copy_data(GOOD), copy_done(), query("SELECT count(*) FROM t")];
    oracle.step("all at once, and a query behind it", &at_once.concat(), Until::Ready(2));
    oracle.end();
}

#[test]
fn b09_the_client_gives_up_a_copy() {
    let mut oracle = oracle();
    begin(&mut oracle);
    oracle.step(
        "CopyFail",
        &[copy_data(GOOD), copy_fail("changed my mind")].concat(),
        Until::Ready(1),
    );
    oracle.query("BEGIN");
    begin(&mut oracle);
    oracle.step("CopyFail in a transaction", &copy_fail(""), Until::Ready(1));
    oracle.query("ROLLBACK");
    oracle.query("SELECT count(*) FROM t");
    oracle.end();
}

#[test]
fn b09_data_after_the_servers_error() {
    let mut oracle = oracle();
    for late in [copy_done(), copy_fail("late"), [copy_data(GOOD), copy_done()].concat()] {
        begin(&mut oracle);
        oracle.step(
            "a bad row",
            &[copy_data(GOOD), copy_data(BAD), copy_data(GOOD), copy_done()].concat(),
            Until::Ready(1),
        );
        begin(&mut oracle);
        oracle.step("a bad row, and the error is heard", &copy_data(BAD), Until::Ready(1));
        let more = [late, query("SELECT 'after it'")].concat();
        oracle.step("what was still on its way, and a query", &more, Until::Ready(1));
    }
    oracle.query("SELECT count(*) FROM t");
    oracle.end();
}

#[test]
fn b09_copy_by_the_extended_protocol() {
    let mut oracle = oracle();
    let start = [parse("", "COPY t FROM STDIN"), bind("", "", &[]), execute("", 0)].concat();
    oracle.step("Execute and Sync", &[start.clone(), sync()].concat(), Until::Tag(b'G'));
    oracle.step("data and Sync", &[copy_data(GOOD), copy_done(), sync()].concat(), Until::Ready(1));
    oracle.step("Execute and Flush", &[start.clone(), flush()].concat(), Until::Tag(b'G'));
    oracle.step("data and Sync", &[copy_data(GOOD), copy_done(), sync()].concat(), Until::Ready(1));
    let whole = [start.clone(), copy_data(GOOD), copy_done(), sync()].concat();
    oracle.step("all in one flight", &whole, Until::Ready(1));
    oracle.step("Execute and Flush", &[start.clone(), flush()].concat(), Until::Tag(b'G'));
    let bad =
        [copy_data(BAD), copy_data(GOOD), copy_done(), query("SELECT 'skipped'"), sync()].concat();
    oracle.step("a bad row: skipped to the Sync", &bad, Until::Ready(1));
    oracle.step("Execute and Flush", &[start, flush()].concat(), Until::Tag(b'G'));
    oracle.step("CopyFail and Sync", &[copy_fail("no"), sync()].concat(), Until::Ready(1));
    oracle.query("SELECT count(*) FROM t");
    oracle.end();
}

#[test]
fn b09_copy_out() {
    let mut oracle = oracle();
    let rows = "COPY (SELECT n, repeat('x', 200) FROM generate_series(1, 2000) n) TO STDOUT";
    oracle.query(rows);
    oracle.query("COPY (SELECT 1 / (5 - n) FROM generate_series(1, 9) n) TO STDOUT");
    oracle.synced("extended", &[parse("", rows), bind("", "", &[]), execute("", 0)]);
    oracle.query("COPY (SELECT 1) TO STDOUT; COPY (SELECT 2) TO STDOUT; SELECT 3");
    oracle.query("BEGIN; COPY (SELECT 1) TO STDOUT");
    oracle.query("COMMIT");
    oracle.end();
}

#[test]
fn b09_several_copies_in_one_query() {
    let mut oracle = oracle();
    let two = query(
        "COPY t FROM STDIN; SELECT count(*) FROM t; COPY t FROM STDIN; SELECT count(*) FROM t",
    );
    oracle.step("the first begins", &two, Until::Tag(b'G'));
    oracle.step("the second begins", &[copy_data(GOOD), copy_done()].concat(), Until::Tag(b'G'));
    oracle.step("the end", &[copy_data(GOOD), copy_done()].concat(), Until::Ready(1));
    oracle.end();
}

#[test]
fn b09_messages_that_do_not_belong_in_a_copy() {
    let mut oracle = oracle();
    begin(&mut oracle);
    oracle.step(
        "Flush and Sync are passed over",
        &[flush(), sync(), copy_data(GOOD), copy_done()].concat(),
        Until::Ready(1),
    );
    oracle.query("SELECT count(*) FROM t");
    oracle.step(
        "data with no copy at all",
        &[copy_data(GOOD), copy_done(), query("SELECT 1")].concat(),
        Until::Ready(1),
    );
    oracle.end();
}

/// A client goes away in the middle of a copy: the server must be free for the next, and nothing be left.
fn leave_in(start: &str, first: u8, leave: fn(Raw)) {
    let world = World::pool(1);
    let mut other = world.client();
    other.run("CREATE TABLE t (n int)");
    for _ in 0..5 {
        let mut client = world.client();
        client.send(&query(start));
        client.until(first);
        if first == b'G' {
            client.send(&copy_data(GOOD));
        }
        leave(client);
        assert_eq!(other.value("SELECT count(*) FROM t"), "0");
    }
    eventually("one server is left", || world.servers() <= 1);
}

#[test]
fn b09_a_client_dies_copying_in() {
    leave_in("COPY t FROM STDIN", b'G', Raw::reset);
}

#[test]
fn b09_a_client_leaves_copying_in() {
    leave_in("COPY t FROM STDIN", b'G', Raw::leave);
}

#[test]
fn b09_a_client_dies_copying_out() {
    leave_in(
        "COPY (SELECT repeat('x', 1000) FROM generate_series(1, 100000)) TO STDOUT",
        b'd',
        Raw::reset,
    );
}

#[test]
fn b09_a_client_leaves_copying_out() {
    leave_in(
        "COPY (SELECT repeat('x', 1000) FROM generate_series(1, 100000)) TO STDOUT",
        b'd',
        drop,
    );
}

#[test]
fn b09_a_long_copy_that_fails_at_its_second_row_is_drained() {
    let world = World::pool(1);
    let (mut client, mut other) = (world.client(), world.client());
    client.run("CREATE TABLE t (n int)");
    let before = world.howdah.resident_kb();
    client.send(&query("COPY t FROM STDIN"));
    client.until(b'G');
    client.send(&copy_data(b"1\nbad\n"));
    let row = copy_data(&b"1234567\n".repeat(8192));
    for _ in 0..1000 {
        client.try_send(&row).expect("the pooler goes on reading");
    }
    client.send(&copy_done());
    assert_eq!(client.until_ready().code(), "22P02");
    assert_eq!(client.value("SELECT count(*) FROM t"), "0");
    assert_eq!(other.value("SELECT 'free'"), "free");
    assert!(world.howdah.resident_kb() < before + 16_000, "memory grew");
}

#[test]
fn b09_both_directions_at_once_do_not_lock_up() {
    // The server answers every statement with a notice as long as the statement, and reads no further while nobody reads
    // its answers; a pooler that stops reading while it is writing would stand still here, as would both its peers.
    let world = World::pool(1);
    let mut client = world.client();
    client.run("CREATE FUNCTION echo(text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE '%', $1; END $$");
    let text = "z".repeat(1_000_000);
    let one = [harness::say::extended("SELECT echo($1)", &[&text]), sync()].concat();
    let mut listener = client.listener();
    let heard = std::thread::spawn(move || listener.until_readies(64));
    client.try_send(&one.repeat(64)).expect("all of it is taken");
    assert_eq!(heard.join().expect("all of it is answered").count(b'N'), 64);
}
