//! Whoever tries passwords, codes and accounts without end, and whom they must not keep out.

use std::collections::BTreeSet;

use super::{PASSWORD, Server, Shown, Visitor, log_in, sign_up};

/// A gateway behind a proxy, so that its customers have addresses.
fn server(settings: &str) -> Server {
    Server::of(&format!("console: {{ {settings} }}\ntrusted_proxies: [127.0.0.1/32]\n"))
}

fn open() -> Server {
    server("sign_up: open, trial_credit: 5")
}

impl Server {
    fn at(&self, address: &str) -> Visitor {
        self.visitor().at(address)
    }
}

/// Tries wrong passwords at a name, and gives the statuses.
async fn guess(visitor: &Visitor, email: &str, tries: usize) -> Vec<u16> {
    visitor.get("/login").await;
    let mut statuses = Vec::new();
    for _ in 0..tries {
        let fields = [("email", email), ("password", "wrong words in here")];
        statuses.push(visitor.post("/login", &fields).await.status);
    }
    statuses
}

async fn signed_up(server: &Server, address: &str, email: &str) -> Visitor {
    let visitor = server.at(address);
    let answer = sign_up(&visitor, email, "").await;
    assert_eq!(answer.status, 303, "{answer:?}");
    visitor
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_refused_keeps_nobody_else_out() {
    let server = open();
    signed_up(&server, "192.0.2.1", "victim@example.com").await;
    let attacker = server.at("198.51.100.7");
    let tried = guess(&attacker, "anybody@example.com", 11).await;
    assert_eq!((tried[0], tried[9], tried[10]), (403, 403, 429), "{tried:?}");
    assert_eq!(guess(&attacker, "victim@example.com", 12).await, [429; 12]);
    let elsewhere = log_in(&server.at("203.0.113.5"), "victim@example.com", PASSWORD).await;
    assert_eq!(elsewhere.status, 303, "{elsewhere:?}");
    // Nor does one address with all of its tries.
    let attacker = server.at("198.51.101.7");
    guess(&attacker, "victim@example.com", 12).await;
    let elsewhere = log_in(&server.at("203.0.113.6"), "victim@example.com", PASSWORD).await;
    assert_eq!(elsewhere.status, 303, "{elsewhere:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_names_keeps_nobody_out() {
    let server = open();
    signed_up(&server, "192.0.2.1", "victim@example.com").await;
    let attacker = server.at("198.51.100.7");
    for number in 0..300 {
        guess(&attacker, &format!("{number}@example.com"), 1).await;
    }
    let elsewhere = log_in(&server.at("203.0.113.5"), "victim@example.com", PASSWORD).await;
    assert_eq!(elsewhere.status, 303, "{elsewhere:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_was_logged_in_before_gets_past() {
    let server = open();
    let ann = signed_up(&server, "192.0.2.1", "ann@example.com").await;
    let eve = signed_up(&server, "192.0.2.2", "eve@example.com").await;
    assert!(ann.device().starts_with("tollgate_device="), "{:?}", ann.device());
    // From many sites, until nobody may try at the name.
    for site in 0..6 {
        guess(&server.at(&format!("198.51.{site}.7")), "ann@example.com", 10).await;
    }
    let ways_in =
        async |visitor: Visitor| log_in(&visitor, "ann@example.com", PASSWORD).await.status;
    assert_eq!(ways_in(server.at("203.0.113.5")).await, 429, "guesses at a name have an end");
    let strange = server.at("203.0.113.6");
    strange.be_device(eve.device());
    assert_eq!(ways_in(strange).await, 429, "another person's device");
    let forged = server.at("203.0.113.7");
    forged.be_device(format!("{}x", ann.device()));
    assert_eq!(ways_in(forged).await, 429);
    for address in ["203.0.113.8", "198.51.1.7"] {
        let existing = server.at(address);
        existing.be_device(ann.device());
        assert_eq!(ways_in(existing).await, 303, "from {address}");
    }
    // It is no way to guess without end.
    let stolen = server.at("203.0.113.9");
    stolen.be_device(ann.device());
    let tried = guess(&stolen, "ann@example.com", 11).await;
    assert_eq!((tried[9], tried[10]), (403, 429), "{tried:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_sign_ups_from_ten_addresses_stop_nobody() {
    let server = open();
    let mut statuses = BTreeSet::new();
    for number in 0..110 {
        let visitor = server.at(&format!("198.51.{}.7", number / 11));
        let answer = sign_up(&visitor, &format!("{number}@example.com"), "").await;
        statuses.insert(answer.status);
    }
    assert_eq!(statuses, BTreeSet::from([303, 429]));
    signed_up(&server, "203.0.113.5", "ann@example.com").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_codes_count_for_their_address_alone() {
    let server = server("sign_up: invite");
    let mut statuses = Vec::new();
    for number in 0..12 {
        let visitor = server.at("198.51.100.7");
        let email = format!("{number}@example.com");
        statuses.push(sign_up(&visitor, &email, "tg-aaaaaaaaaaaaaaaaaaaaaaaaaa").await.status);
    }
    assert_eq!((statuses[9], statuses[11]), (409, 429), "{statuses:?}");
    let newcomer = server.at("203.0.113.5");
    let answer = sign_up(&newcomer, "ann@example.com", "tg-aaaaaaaaaaaaaaaaaaaaaaaaaa").await;
    assert_eq!(answer.status, 409, "a wrong code, and not too many: {answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cookies_of_devices_go_to_the_log_in_alone() {
    let set = |shown: &Shown| {
        let all = shown.headers.get_all("set-cookie").iter();
        let mut all = all.map(|value| value.to_str().expect("text").to_owned());
        all.find(|set| set.starts_with("tollgate_device=")).expect("a device's cookie")
    };
    let server = open();
    let plain = set(&sign_up(&server.visitor(), "ann@example.com", "").await);
    for word in ["HttpOnly", "SameSite=Strict", "Path=/console/login", "Max-Age="] {
        assert!(plain.contains(word), "{word} in {plain}");
    }
    assert!(!plain.contains("Secure"), "{plain}");
    let secure = Server::with("sign_up: open, public_url: 'https://gateway.example.com'");
    let page = sign_up(&secure.visitor(), "ann@example.com", "").await;
    assert!(set(&page).contains("Secure"), "{page:?}");
}
