//! Choice of the connections to close, without sockets.

use super::entries::FUTILE_PAUSE;
use super::*;

fn network(number: u8) -> Option<IpAddr> {
    Some(IpAddr::from([192, 0, 2, number]))
}

/// A connection that came after those before it.
fn add(
    table: &mut ConnectionEntries,
    network: Option<IpAddr>,
    is_authenticated: bool,
) -> Arc<ConnectionState> {
    // What came in one millisecond came at one time.
    std::thread::sleep(Duration::from_millis(2));
    let state = Arc::new(ConnectionState::new(network, None));
    if is_authenticated {
        state.set_authenticated();
    }
    table.add(Arc::clone(&state));
    state
}

/// Closes one, and gives the index of it.
fn closed_in_turn(
    table: &mut ConnectionEntries,
    from: Option<IpAddr>,
    max: usize,
    all: &[Arc<ConnectionState>],
) -> usize {
    let before: Vec<_> = all.iter().map(|state| state.is_closing()).collect();
    assert!(table.close_one(from, max), "somebody can");
    let next = all.iter().zip(before).position(|(state, before)| state.is_closing() && !before);
    next.expect("one of these")
}

#[test]
fn unauthenticated_connections_close_first_and_the_longest_idle_of_them() {
    let mut table = ConnectionEntries::default();
    let authenticated = [false, true, false, true, false, true, false, false];
    let all: Vec<_> =
        authenticated.map(|authenticated| add(&mut table, None, authenticated)).into();
    assert!(all[0].begin(), "an unauthenticated request is under way, and younger than the others");
    let mut next = || closed_in_turn(&mut table, None, 8, &all);
    // A quarter of eight may stay.
    assert_eq!([next(), next(), next()], [2, 4, 6], "unauthenticated ones, the oldest first");
    assert_eq!([next(), next(), next()], [1, 3, 5], "then customers that are idle");
    assert_eq!([next(), next()], [7, 0], "in the end every unauthenticated one");
    assert!(!table.close_one(None, 8), "and nobody is told twice");
}

/// A flood of connections does not close one that has come just now, whose key nobody has checked yet, and
/// does not close an idle customer in its place.
#[test]
fn who_has_just_come_has_time_to_show_a_key() {
    let grace = Duration::from_millis(200);
    let mut table = ConnectionEntries { grace, ..ConnectionEntries::default() };
    let all: Vec<_> = [true, false, false, false, false]
        .map(|authenticated| add(&mut table, None, authenticated))
        .into();
    assert!(!table.close_one(None, 5), "all are new");
    assert!(table.is_grace_pending, "which will pass");
    std::thread::sleep(grace);
    all[1].set_authenticated();
    assert_eq!(closed_in_turn(&mut table, None, 5, &all), 2, "the oldest that has shown none");
}

/// A customer who is idle does not give way to a flood because most of it is still about to come.
#[test]
fn pending_connections_are_unauthenticated_too() {
    let mut table = ConnectionEntries::default();
    let all: Vec<_> =
        [true, false].map(|authenticated| add(&mut table, None, authenticated)).into();
    for port in 1..=6 {
        table.pending.insert(SocketAddr::from(([192, 0, 2, 1], port)), (None, Instant::now()));
    }
    assert_eq!(closed_in_turn(&mut table, None, 8, &all), 1, "the unauthenticated one");
    assert!(!table.close_one(None, 8), "the customer stays, and who comes is refused");
    table.pending.clear();
    assert_eq!(closed_in_turn(&mut table, None, 8, &all), 0, "without a flood it is the one to go");
}

#[test]
fn a_customers_request_that_is_under_way_is_not_cut() {
    let mut table = ConnectionEntries::default();
    let all: Vec<_> = (0..3).map(|_| add(&mut table, None, true)).collect();
    assert!(all[0].begin() && all[2].begin(), "requests are under way");
    assert_eq!(closed_in_turn(&mut table, None, 3, &all), 1, "the idle one");
    assert!(!table.close_one(None, 3), "the others are busy");
    all[2].end();
    assert!(!table.close_one(None, 3), "it is not looked again at once");
    std::thread::sleep(FUTILE_PAUSE);
    assert_eq!(closed_in_turn(&mut table, None, 3, &all), 2, "one has become idle");
}

#[test]
fn one_who_was_chosen_and_is_at_work_again_stays() {
    let mut table = ConnectionEntries::default();
    let all: Vec<_> = (0..4).map(|_| add(&mut table, None, false)).collect();
    assert_eq!(closed_in_turn(&mut table, None, 4, &all), 0, "the oldest of four");
    all[1].set_authenticated();
    assert!(all[1].begin(), "it was to be the next");
    assert_eq!(closed_in_turn(&mut table, None, 4, &all), 2, "who is idle is next");
}

#[test]
fn an_address_makes_room_for_itself_alone() {
    let mut table = ConnectionEntries::default();
    let addresses = [1, 2, 1, 2, 1].map(network);
    let all: Vec<_> = addresses.map(|address| add(&mut table, address, false)).into();
    let mut next = || closed_in_turn(&mut table, network(2), 2, &all);
    assert_eq!([next(), next()], [1, 3], "of the address that wants room");
    assert!(!table.close_one(network(2), 2), "no other gives way for it");
    assert!(!table.close_one(network(9), 2), "nor for one that has none");
    let counts =
        |table: &ConnectionEntries| table.addresses.values().map(|it| it.count).collect::<Vec<_>>();
    assert_eq!(counts(&table), [3], "who was told does not count for its address");
    for index in 0..5 {
        table.remove(index);
    }
    assert_eq!((table.count, table.closing), (0, 0), "all are gone");
    assert!(table.addresses.is_empty(), "and nothing is kept of their addresses");
    add(&mut table, network(1), false);
    assert_eq!(table.states.len(), 5, "places are used again");
}

/// A flood does not have to look at everybody for each that it brings.
#[test]
fn giving_way_is_cheap_when_thousands_come() {
    const MAX: usize = 20_000;
    let mut table = ConnectionEntries::default();
    let push =
        |table: &mut ConnectionEntries| table.add(Arc::new(ConnectionState::new(network(1), None)));
    for _ in 0..MAX {
        push(&mut table);
    }
    let began = Instant::now();
    for _ in 0..MAX / 2 {
        assert!(table.close_one(None, MAX), "an idle one");
        push(&mut table);
    }
    let each = began.elapsed() / u32::try_from(MAX / 2).expect("a number");
    // 10 µs in a release build on a small machine; tests are built without optimizations.
    assert!(each < Duration::from_millis(1), "{each:?} each");
}

#[test]
fn small_machines_have_fewer_connections_and_streams() {
    const MIB: u64 = 1 << 20;
    for (memory, connections, streams) in [
        (Some(150 * MIB), 960, 600),
        (Some(512 * MIB), 3_276, 2_048),
        (Some(24_000 * MIB), 153_600, 96_000),
        (Some(0), 1, 1),
        (None, usize::MAX, usize::MAX),
    ] {
        let of = |each_bytes| fitting(memory, each_bytes);
        assert_eq!((of(CONNECTION_BYTES), of(32 * 1024)), (connections, streams), "{memory:?}");
    }
}

/// Whoever has few connections keeps them when somebody with very many wants more.
#[test]
fn an_account_with_many_connections_gives_way_before_others() {
    let mut table = ConnectionEntries::default();
    let accounts = [1, 2, 2, 2, 1, 2, 3, 2];
    let all: Vec<_> = accounts.map(|_| add(&mut table, None, true)).into();
    for (state, account) in all.iter().zip(accounts) {
        state.set_account(account);
    }
    let mut next = || closed_in_turn(&mut table, None, 8, &all);
    assert_eq!([next(), next(), next()], [1, 2, 3], "the oldest of the one with five of eight");
}
