use http::HeaderValue;

use super::CustomerReads as Reads;
use super::*;

/// A row of the table: what follows for an answer that is passed on or put together, and for a submit.
struct TableRow {
    failure: CallFailure,
    outcome: Option<Outcome>,
    progress: Progress,
    reads: Reads,
    next: NextTarget,
    submit_reads: Reads,
    submit_next: NextTarget,
}

const DELAY: Option<Duration> = Some(Duration::from_secs(7));

/// The whole table, one row after the other as the documentation has them.
fn table() -> Vec<TableRow> {
    use CallFailure as F;
    use NextTarget::{Another, Free, IfAllowed, IfListed, Never, Same};
    let row = |failure, outcome, progress, reads, next, submit_reads, submit_next| TableRow {
        failure,
        outcome,
        progress,
        reads,
        next,
        submit_reads,
        submit_next,
    };
    let busy = |status| F::Busy { status, delay: DELAY };
    let (failed, broken) = (Some(Outcome::Failed), Some(Outcome::Broken));
    let (late, offered) = (Some(Outcome::TimedOut), Some(Outcome::NotOffered));
    let was_busy = Some(Outcome::Busy(DELAY));
    let (none, refused) = (Progress::NotSent, Progress::Refused);
    let (silent, lost) = (Progress::Silent, Progress::Lost);
    let status = |status| IfAllowed(RepeatAfter::Status(status));
    let after_loss = IfAllowed(RepeatAfter::ConnectionLost);
    let after_silence = IfAllowed(RepeatAfter::Timeout);
    let (r502, r503, r504) = (Reads::Unavailable, Reads::Overloaded, Reads::TimedOut);
    let unreachable = Some(Outcome::Unreachable);
    let credential = Some(Outcome::Credential);
    let (model, path) = (F::NotOffered(Missing::Model), F::NotOffered(Missing::Path));
    let (r404, r429) = (Reads::NotOffered, Reads::Busy);
    let words = Reads::ItsWords;
    let (free_model, free_path) = (Free(Missing::Model), Free(Missing::Path));
    let (bad, large) = (Reads::Unreadable, Reads::TooLarge);
    let sent = Progress::Sent;
    vec![
        row(F::NotConnected, unreachable, none, r502, Another, r502, Another),
        row(F::ProxyFailed, Some(Outcome::Proxy), none, r502, Another, r502, Another),
        row(F::Exhausted(LocalResource::Descriptors), None, none, r503, Never, r503, Never),
        row(F::Exhausted(LocalResource::Memory), None, none, r503, Never, r503, Never),
        row(F::Exhausted(LocalResource::Ports), None, none, r503, Another, r503, Another),
        row(F::ClosedWhileIdle, None, none, r502, Same, r502, Same),
        row(F::BrokenWhileSending, broken, none, r502, Another, r502, Another),
        row(F::StalledWhileSending, late, none, r502, Another, r502, Another),
        row(F::TimedOut, late, silent, r504, after_silence, r504, Never),
        row(F::ConnectionLost, broken, lost, r502, after_loss, r504, Never),
        row(busy(429), was_busy, refused, r429, Another, r429, Another),
        row(busy(503), was_busy, refused, r429, Another, r429, Never),
        row(
            F::RefusedRequest(400),
            Some(Outcome::Refused),
            refused,
            words,
            IfListed(400),
            words,
            IfListed(400),
        ),
        row(F::RefusedCredential, credential, refused, r502, Another, r502, Another),
        row(F::RefusedAccount, credential, refused, r502, Another, r502, Another),
        row(F::RefusedToken, None, refused, r502, Same, r502, Same),
        row(F::NotDone(404), failed, refused, r502, Another, r502, Another),
        row(F::NotDone(503), failed, refused, r502, Another, r502, Never),
        row(F::NotBilled(500), failed, refused, r502, Another, r502, Never),
        row(F::Doubtful(520), failed, lost, r502, status(520), r502, Never),
        row(F::Doubtful(408), failed, lost, r504, status(408), r504, Never),
        row(F::Doubtful(504), failed, lost, r504, status(504), r504, Never),
        row(model, offered, refused, r404, free_model, r404, free_model),
        row(path, offered, refused, r404, free_path, r404, free_path),
        row(F::FailedWithSuccess, failed, refused, r502, Another, r502, Never),
        row(F::Unreadable, failed, lost, bad, Never, bad, Never),
        row(F::TooLarge, Some(Outcome::Ok), lost, large, Never, large, Never),
        row(F::BodyTimedOut, late, silent, r504, Never, r504, Never),
        row(F::BodyBroken, broken, sent, r502, Never, r504, Never),
    ]
}

/// The row of a failure in the table: a variant without a row does not compile.
fn place(failure: CallFailure) -> usize {
    match failure {
        CallFailure::NotConnected => 0,
        CallFailure::ProxyFailed => 1,
        CallFailure::Exhausted(_) => 2,
        CallFailure::ClosedWhileIdle => 3,
        CallFailure::BrokenWhileSending => 4,
        CallFailure::StalledWhileSending => 5,
        CallFailure::TimedOut => 6,
        CallFailure::ConnectionLost => 7,
        CallFailure::Busy { .. } => 8,
        CallFailure::RefusedRequest(_) => 9,
        CallFailure::RefusedCredential => 10,
        CallFailure::RefusedAccount => 11,
        CallFailure::RefusedToken => 12,
        CallFailure::NotDone(_) => 13,
        CallFailure::NotBilled(_) => 14,
        CallFailure::Doubtful(_) => 15,
        CallFailure::NotOffered(_) => 16,
        CallFailure::FailedWithSuccess => 17,
        CallFailure::Unreadable => 18,
        CallFailure::TooLarge => 19,
        CallFailure::BodyTimedOut => 20,
        CallFailure::BodyBroken => 21,
    }
}

#[test]
fn every_failure_has_the_consequences_that_the_table_says() {
    let mut places: Vec<usize> = Vec::new();
    for row in table() {
        let TableRow { failure, outcome, progress, .. } = row;
        places.push(place(failure));
        for (delivery, reads, next) in [
            (Delivery::Relay, row.reads, row.next),
            (Delivery::Stream, row.reads, row.next),
            (Delivery::Collect, row.reads, row.next),
            (Delivery::Submit, row.submit_reads, row.submit_next),
        ] {
            let expected = Consequence { reads, outcome, next, progress };
            assert_eq!(failure.consequence(delivery), expected, "{failure:?}, {delivery:?}");
        }
    }
    places.dedup();
    assert_eq!(places, Vec::from_iter(0..22), "each failure once, in the order of the table");
}

/// Work that may have been done is not sent again unless the operator says so; a submit, and an answer
/// with a status of success, never.
#[test]
fn what_may_be_done_is_repeated_only_where_an_operator_allows_it() {
    for TableRow { failure, next, submit_next, progress, .. } in table() {
        if progress.may_be_done() {
            let is_conditional = matches!(next, NextTarget::IfAllowed(_));
            assert!(is_conditional || next == NextTarget::Never, "{failure:?}");
            assert_eq!(submit_next, NextTarget::Never, "{failure:?}");
        }
    }
}

#[test]
fn what_the_customer_reads_has_the_status_of_the_table() {
    for TableRow { failure, reads, .. } in table() {
        let kind = match reads {
            Reads::ItsWords | Reads::NotOffered | Reads::Unavailable => {
                ErrorKind::UpstreamUnavailable
            }
            Reads::Busy => ErrorKind::RateLimited,
            Reads::Unreadable | Reads::TooLarge => ErrorKind::BadGateway,
            Reads::TimedOut => ErrorKind::UpstreamTimeout,
            Reads::Overloaded => ErrorKind::Overloaded,
        };
        let error = failure.error(Delivery::Relay);
        assert_eq!(error.kind, kind, "{failure:?}");
        if reads == Reads::Busy {
            assert_eq!(error.retry_after, DELAY, "{failure:?}");
        }
    }
}

#[test]
fn a_status_says_what_became_of_the_work() {
    let page = HeaderMap::new();
    let json = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    for (status, of_page, of_json) in [
        (101, CallFailure::Unreadable, CallFailure::Unreadable),
        (307, CallFailure::NotDone(307), CallFailure::NotDone(307)),
        (400, CallFailure::RefusedRequest(400), CallFailure::RefusedRequest(400)),
        (401, CallFailure::RefusedCredential, CallFailure::RefusedCredential),
        (402, CallFailure::RefusedAccount, CallFailure::RefusedAccount),
        (403, CallFailure::NotDone(403), CallFailure::NotDone(403)),
        (408, CallFailure::Doubtful(408), CallFailure::Doubtful(408)),
        (422, CallFailure::RefusedRequest(422), CallFailure::RefusedRequest(422)),
        (500, CallFailure::Doubtful(500), CallFailure::NotBilled(500)),
        (502, CallFailure::Doubtful(502), CallFailure::NotBilled(502)),
        (503, CallFailure::NotDone(503), CallFailure::NotDone(503)),
        (504, CallFailure::Doubtful(504), CallFailure::Doubtful(504)),
        (529, CallFailure::NotDone(529), CallFailure::NotDone(529)),
    ] {
        assert_eq!(CallFailure::from_status(status, &page), of_page, "{status} with a page");
        assert_eq!(CallFailure::from_status(status, &json), of_json, "{status} with JSON");
    }
}

/// Whatever an operator lists in `retries.on` has its effect: another target is asked after it, because it
/// always is, or because it is listed.
#[test]
fn every_status_that_can_be_listed_can_be_repeated_after() {
    let page = HeaderMap::new();
    let json = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    for status in 400..600 {
        for headers in [&page, &json] {
            let failure = CallFailure::from_status(status, headers);
            let next = failure.consequence(Delivery::Relay).next;
            let is_repeated = match next {
                NextTarget::Another => true,
                NextTarget::IfListed(listed) => listed == status,
                NextTarget::IfAllowed(after) => after == RepeatAfter::Status(status),
                NextTarget::Same | NextTarget::Free(_) | NextTarget::Never => false,
            };
            assert!(is_repeated, "{status}: {failure:?}, {next:?}");
        }
    }
}

/// A look-up that fails with an error of the system by this number.
struct FailingLookup(i32);

impl tollgate_outbound::Resolve for FailingLookup {
    fn resolve<'a>(
        &'a self,
        _: &'a str,
    ) -> futures_util::future::BoxFuture<'a, std::io::Result<Vec<std::net::IpAddr>>> {
        Box::pin(async { Err(std::io::Error::from_raw_os_error(self.0)) })
    }
}

#[tokio::test]
async fn what_this_machine_lacks_is_read_from_the_number_of_the_error() {
    use rustix::io::Errno;
    use tollgate_options::network::Destination;
    for (errno, expected) in [
        (Errno::MFILE, CallFailure::Exhausted(LocalResource::Descriptors)),
        (Errno::NFILE, CallFailure::Exhausted(LocalResource::Descriptors)),
        (Errno::NOMEM, CallFailure::Exhausted(LocalResource::Memory)),
        (Errno::NOBUFS, CallFailure::Exhausted(LocalResource::Memory)),
        (Errno::CONNREFUSED, CallFailure::NotConnected),
    ] {
        let resolver = std::sync::Arc::new(FailingLookup(errno.raw_os_error()));
        let dialer = tollgate_outbound::Dialer::with_resolver(resolver);
        let to = Destination { host: "pods.test".to_owned(), port: 443, tls: None, proxy: None };
        let allowed = tollgate_outbound::AllowedAddresses::All;
        let failed = dialer.dial(&to, allowed, Duration::from_secs(1)).await;
        let failed = failed.expect_err("no address");
        assert_eq!(CallFailure::from_dial(&failed), expected, "{errno:?}: {failed}");
        let outbound = OutboundError::Unreachable(failed);
        assert_eq!(CallFailure::from_outbound(&outbound), expected, "{errno:?}");
        let error = expected.error(Delivery::Collect);
        let is_ours = expected != CallFailure::NotConnected;
        assert_eq!(error.kind == ErrorKind::Overloaded, is_ours, "{errno:?}");
        assert_eq!(error.retry_after.is_some(), is_ours, "{errno:?}");
    }
}
