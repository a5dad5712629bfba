//! Translated documents on the wire: their length is known once they are whole, so it is stated.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;

use crate::harness::{Answer, Gateway, connect, http_builder, simulator};

use super::wire::Customer;
use super::{CELLS, gateway};

/// A short answer and the longest one that the simulator gives. One above 64 KiB would be more than a segment of
/// the loopback interface.
const LENGTHS: [(&str, std::ops::Range<usize>); 2] =
    [("chunks=2", 100..4_000), ("chunks=1000", 2_000..8_000)];

/// Sends `request` and reads its answer, which says its length.
fn exchange(stream: &mut TcpStream, request: &[u8]) -> Answer {
    stream.write_all(request).expect("sent");
    let (mut answer, mut piece) = (Answer::default(), vec![0; 64 * 1024]);
    while !answer.is_whole() {
        let count = stream.read(&mut piece).expect("more of the answer");
        assert!(count > 0, "it ends early: {answer:?}");
        answer.bytes.extend_from_slice(&piece[..count]);
    }
    answer
}

/// Segments with data that have arrived: as many as the gateway has made writes, since none of them is delayed.
fn segments(stream: &TcpStream) -> u32 {
    let info = pingora::protocols::l4::ext::get_tcp_info(stream.as_raw_fd());
    info.expect("figures of a connection").tcpi_data_segs_in
}

fn request(gateway: &Gateway, customer: Customer, model: &str) -> Vec<u8> {
    let (path, body) = customer.request(&customer.body(model, false));
    gateway.post(&path, &format!("Content-Length: {}\r\n", body.len()), &body)
}

#[test]
fn a_translated_document_states_its_length_and_leaves_in_one_write() {
    let sim = simulator(&[]);
    for (settings, lengths) in LENGTHS {
        let gateway = gateway(sim.addr(), &format!("/sim:{settings}"), "");
        let mut stream = connect(gateway.address);
        for (number, (customer, model)) in (1..).zip(CELLS) {
            // One connection for all: a wrong length would garble the next answer.
            let answer = exchange(&mut stream, &request(&gateway, customer, model));
            let what = format!("{customer:?} {model} {settings}: {}", answer.head());
            assert_eq!(answer.status(), 200, "{what}");
            let length = answer.header("content-length").expect(&what);
            assert_eq!(length, answer.body().len().to_string(), "{what}");
            assert!(lengths.contains(&answer.body().len()), "{what}");
            assert_eq!(answer.header("transfer-encoding"), None, "{what}");
            assert!(!customer.read(&answer, false).text.is_empty(), "{what}");
            assert_eq!(segments(&stream), number, "{what}");
        }
    }
}

#[tokio::test]
async fn a_translated_document_states_its_length_over_http2() {
    let sim = simulator(&["chunks=1000"]);
    let gateway = gateway(sim.addr(), "", "");
    let client = http_builder().http2_prior_knowledge().build().expect("a client");
    for (customer, model) in CELLS {
        let (path, body) = customer.request(&customer.body(model, false));
        let call = client.post(format!("http://{}{path}", gateway.address)).body(body);
        let call = call.bearer_auth(&gateway.key).header("content-type", "application/json");
        let answer = call.send().await.expect("an answer");
        let what = format!("{customer:?} {model}: {answer:?}");
        assert_eq!((answer.status().as_u16(), answer.version()), (200, http::Version::HTTP_2));
        let stated = answer.headers().get("content-length").expect(&what).clone();
        let document = answer.bytes().await.expect("a body");
        assert_eq!(stated, document.len().to_string(), "{what}");
    }
}
