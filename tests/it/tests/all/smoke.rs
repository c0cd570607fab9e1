//! The everyday road, on every driver and number of workers.

use harness::World;

#[test]
fn a_query_goes_through() {
    let world = World::pool(2);
    let mut client = world.client();
    assert_eq!(client.value("SELECT 1 + 1"), "2");
    assert_eq!(world.servers(), 1);
}
