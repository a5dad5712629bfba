//! An object store that checks every signature and checksum by itself, and does what stores should not.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::Md5;
use sha2::{Digest as _, Sha256};
use tollgate::ledger::{Archive, ArchiveTo, BucketOptions};
use tollgate::secret::Secret;

use crate::harness::hang;

const ACCESS_KEY: &str = "AKIDTOLLGATE";
pub(crate) const SECRET_KEY: &str = "canary-7f3a-secret-key";
const REGION: &str = "eu-central-1";

/// A store's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// Connections are closed at once.
    Away,
    /// It takes what is sent, and says nothing.
    Silent,
    /// It has no room.
    Full,
    /// It speaks something else than HTTP.
    Garbage,
    /// A page of HTML for everything, with 200.
    Page,
    /// It says how long an object is, and closes the connection in its middle.
    Broken,
    /// Half of an object, as if it were all.
    Half,
    /// Another byte in the middle of an object.
    Flipped,
    /// It says yes, and has nothing.
    Forgets,
    /// It sends everybody elsewhere.
    Redirects,
    /// Another key than the one it knows.
    Refuses,
    /// A byte now and then.
    Trickles,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Vec<u8>>,
    gets: usize,
    wrong: Vec<String>,
    fault: Option<Fault>,
}

/// The store, for as long as the process runs.
pub(crate) struct Store {
    port: u16,
    bucket: String,
    state: Arc<Mutex<State>>,
}

impl Store {
    pub(crate) fn start(bucket: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (state, name) = (Arc::<Mutex<State>>::default(), bucket.to_owned());
        let store = Self { port, bucket: name.clone(), state: Arc::clone(&state) };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (state, name) = (Arc::clone(&state), name.clone());
                std::thread::spawn(move || serve(stream, &name, &state));
            }
        });
        store
    }

    pub(crate) fn options(&self) -> BucketOptions {
        BucketOptions {
            endpoint: self.endpoint().parse().expect("a URL"),
            region: REGION.to_owned(),
            bucket: self.bucket.clone(),
            prefix: "tollgate/a b".replace(' ', "="),
            path_style: true,
            access_key: Secret::new(ACCESS_KEY.to_owned()),
            secret_key: Secret::new(SECRET_KEY.to_owned()),
            timeout: Duration::from_millis(700),
            proxy: None,
        }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    pub(crate) fn archive(&self) -> Archive {
        Archive { to: ArchiveTo::Bucket(Box::new(self.options())), keep: Duration::ZERO }
    }

    pub(crate) fn does(&self, fault: Fault) {
        self.state.lock().expect("not poisoned").fault = Some(fault);
    }

    /// The keys of all objects.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.state.lock().expect("not poisoned").objects.keys().cloned().collect()
    }

    /// Puts the content of one object under another key.
    pub(crate) fn copy(&self, from: &str, to: &str) {
        let mut state = self.state.lock().expect("not poisoned");
        let content = state.objects.get(from).expect("an object").clone();
        state.objects.insert(to.to_owned(), content);
    }

    pub(crate) fn gets(&self) -> usize {
        self.state.lock().expect("not poisoned").gets
    }

    /// Violations that the store has seen.
    pub(crate) fn wrong(&self) -> Vec<String> {
        self.state.lock().expect("not poisoned").wrong.clone()
    }
}

struct Request {
    method: String,
    path: String,
    query: String,
    headers: HashMap<String, String>,
    body: Vec<u8>,
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut input = BufReader::new(stream);
    let mut line = String::new();
    input.read_line(&mut line).ok()?;
    let mut words = line.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let (path, query) = (path.to_owned(), query.to_owned());
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        input.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().expect("digits"));
    let mut body = vec![0; length];
    input.read_exact(&mut body).ok()?;
    Some(Request { method, path, query, headers, body })
}

fn serve(mut stream: TcpStream, bucket: &str, state: &Mutex<State>) {
    let fault = state.lock().expect("not poisoned").fault.unwrap_or(Fault::None);
    if fault == Fault::Away {
        return;
    }
    let Some(request) = read(&stream) else { return };
    if let Err(what) = check(&request, fault) {
        state.lock().expect("not poisoned").wrong.push(what.clone());
        return answer(&mut stream, "403 Forbidden", &error(&what));
    }
    let (status, mut body) = match fault {
        Fault::Silent => hang(),
        Fault::Garbage => {
            return drop(stream.write_all(b"\x16\x03\x01 canary of a stranger\r\n\r\n"));
        }
        Fault::Full => ("507 Insufficient Storage", error("XMinioStorageFull")),
        Fault::Refuses => ("403 Forbidden", error("SignatureDoesNotMatch")),
        Fault::Page => ("200 OK", b"<html>Welcome to this network!</html>".to_vec()),
        Fault::Redirects => {
            let head = "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:9/canary?X-Amz-\
                        Signature=1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            return drop(stream.write_all(head.as_bytes()));
        }
        _ => done(request, bucket, state, fault),
    };
    if status != "200 OK"
        || !matches!(fault, Fault::Broken | Fault::Half | Fault::Flipped | Fault::Trickles)
    {
        return answer(&mut stream, status, &body);
    }
    let (whole, middle) = (body.len(), body.len() / 2);
    match fault {
        Fault::Broken => body.truncate(middle),
        Fault::Half => {
            body.truncate(middle);
            return answer(&mut stream, status, &body);
        }
        Fault::Flipped if whole > 0 => body[middle] ^= 1,
        _ => {}
    }
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {whole}\r\nConnection: close\r\n\r\n");
    drop(stream.write_all(head.as_bytes()));
    if fault == Fault::Trickles {
        for byte in body {
            if stream.write_all(&[byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        return;
    }
    drop(stream.write_all(&body));
}

/// The store's correct answer.
fn done(
    request: Request,
    bucket: &str,
    state: &Mutex<State>,
    fault: Fault,
) -> (&'static str, Vec<u8>) {
    let mut state = state.lock().expect("not poisoned");
    let Some(key) = request.path.strip_prefix(&format!("/{bucket}/")) else {
        return ("404 Not Found", error("NoSuchBucket"));
    };
    let key = key.replace("%3D", "=");
    match request.method.as_str() {
        "PUT" => {
            if fault != Fault::Forgets {
                state.objects.insert(key, request.body);
            }
            ("200 OK", Vec::new())
        }
        "GET" => {
            state.gets += 1;
            match state.objects.get(&key).filter(|_| fault != Fault::Forgets) {
                Some(object) => ("200 OK", object.clone()),
                None => ("404 Not Found", error("NoSuchKey")),
            }
        }
        _ => ("405 Method Not Allowed", error("MethodNotAllowed")),
    }
}

fn error(code: &str) -> Vec<u8> {
    format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>canary</Message></Error>")
        .into()
}

fn answer(stream: &mut TcpStream, status: &str, body: &[u8]) {
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    drop(stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)));
}

fn hmac(key: &[u8], message: &str) -> Vec<u8> {
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let with = |pad: u8| block.map(|byte| byte ^ pad);
    let inner = Sha256::new().chain_update(with(0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(with(0x5c)).chain_update(inner).finalize().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The signature, by Amazon's description of Signature Version 4 in a query, and the body's checksum.
fn check(request: &Request, fault: Fault) -> Result<(), String> {
    if request.headers.contains_key("transfer-encoding") {
        return Err("NotImplemented".to_owned());
    }
    let mut pairs: Vec<(&str, &str)> =
        request.query.split('&').filter_map(|pair| pair.split_once('=')).collect();
    pairs.sort_unstable();
    let message = |name: &str| {
        let found = pairs.iter().find(|(existing, _)| *existing == name);
        found.map(|(_, value)| value.replace("%2F", "/").replace("%3B", ";")).unwrap_or_default()
    };
    let (date, signed) = (message("X-Amz-Date"), message("X-Amz-SignedHeaders"));
    let day = date.get(..8).unwrap_or_default();
    let scope = format!("{day}/{REGION}/s3/aws4_request");
    if message("X-Amz-Credential") != format!("{ACCESS_KEY}/{scope}") {
        return Err("InvalidAccessKeyId".to_owned());
    }
    let canonical_query: Vec<String> = pairs
        .iter()
        .filter(|(name, _)| *name != "X-Amz-Signature")
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let mut canonical_headers = String::new();
    for name in signed.split(';') {
        let value = request.headers.get(name).ok_or("MissingSignedHeader")?;
        canonical_headers.push_str(&format!("{name}:{value}\n"));
    }
    let canonical = format!(
        "{}\n{}\n{}\n{canonical_headers}\n{signed}\nUNSIGNED-PAYLOAD",
        request.method,
        request.path,
        canonical_query.join("&")
    );
    let to_sign = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", hex(&Sha256::digest(canonical)));
    let mut key = format!("AWS4{SECRET_KEY}").into_bytes();
    for part in [day, REGION, "s3", "aws4_request"] {
        key = hmac(&key, part);
    }
    if message("X-Amz-Signature") != hex(&hmac(&key, &to_sign)) {
        return Err("SignatureDoesNotMatch".to_owned());
    }
    if request.method == "PUT" && fault == Fault::None {
        let md5 = STANDARD.encode(Md5::digest(&request.body));
        if request.headers.get("content-md5") != Some(&md5) || !signed.contains("content-md5") {
            return Err("BadDigest".to_owned());
        }
    }
    Ok(())
}
