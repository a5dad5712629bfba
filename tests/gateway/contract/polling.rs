//! Asking how tasks are, of upstreams that have no time.

use std::time::{Duration, Instant};

use serde_json::json;

use super::upstream::{Upstream, answer, json};
use super::{family_s, gateway, record, submit};
use crate::harness::within;

/// A requested pause of the upstream applies to all polls: of this task and others, by the gateway and by
/// customers.
#[test]
fn an_upstream_that_asks_for_time_is_not_polled_before() {
    for (status, lines, seconds) in [
        (429, "Retry-After: 4\r\n", 4.0),
        (503, "Retry-After: 1.5\r\n", 1.5),
        (500, "Retry-After-Ms: 1200\r\n", 1.2),
    ] {
        let began = Instant::now();
        let upstream = Upstream::start(move |request| {
            let id = format!("cgt-{}", began.elapsed().as_nanos());
            if request.is_post() {
                json(200, &json!({"id": id}).to_string())
            } else {
                answer(status, lines, "")
            }
        });
        let gateway = gateway(&upstream);
        let submitted = |seed: u32| {
            let mut body = family_s();
            body["seed"] = seed.into();
            submit(&gateway, &body).json()["id"].as_str().expect("an id").to_owned()
        };
        let ids = [submitted(1), submitted(2)];
        let is_polled_again = || {
            let shown = ids.each_ref().map(|id| record(&gateway, id).json()["status"].clone());
            assert_eq!(shown, ["processing", "processing"], "they are shown as they stand");
            upstream.looks().len() >= 2
        };
        within(Duration::from_secs(60), is_polled_again, || {
            "the upstream is not polled again".to_owned()
        });
        let looks = upstream.looks();
        let pause = looks[1].duration_since(looks[0]);
        assert!(pause >= Duration::from_secs_f64(seconds - 0.1), "{status}: after {pause:?}");
    }
}
