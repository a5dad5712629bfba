//! `CONNECT` through an HTTP proxy (RFC 9110 section 9.3.6).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tollgate_options::network::ProxyCredentials;

use super::error::{DialFault, Reason};

/// The longest head of a proxy's answer, in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// The most header fields of a proxy's answer.
const FIELDS_MAX: usize = 64;
/// The longest part of a proxy's reason phrase in a message, in letters.
const REASON_LETTERS_MAX: usize = 80;

/// Has the proxy connect to `target`, a host and port.
pub(super) async fn connect<S>(
    stream: &mut S,
    target: &str,
    credentials: Option<&ProxyCredentials>,
) -> Result<(), Reason>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut head = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
    if let Some(ProxyCredentials { user, password }) = credentials {
        // RFC 7617.
        let basic = STANDARD.encode(format!("{user}:{}", password.expose()));
        head += &format!("Proxy-Authorization: Basic {basic}\r\n");
    }
    head += "\r\n";
    stream.write_all(head.as_bytes()).await?;
    stream.flush().await?;
    let mut read = Vec::new();
    loop {
        let mut piece = [0; 1024];
        let count = stream.read(&mut piece).await?;
        if count == 0 {
            return Err(Reason::new(DialFault::Closed, "it closed the connection unanswered"));
        }
        read.extend_from_slice(piece.get(..count).unwrap_or_default());
        if let Some((status, phrase, length)) = parse(&read)? {
            return match status {
                // Who is connected to has nothing to say before it is asked something.
                200..300 if length < read.len() => Err(unreadable()),
                200..300 => Ok(()),
                407 if credentials.is_none() => Err(Reason::new(
                    DialFault::ProxyCredentials,
                    "it wants credentials (407), and there are none",
                )),
                407 => {
                    let text = "it refuses the credentials (407)";
                    Err(Reason::new(DialFault::ProxyCredentials, text))
                }
                _ => {
                    let text = format!("it answered CONNECT with {status}{phrase}");
                    Err(Reason::new(DialFault::ProxyRefused, text))
                }
            };
        }
        // A server behind the wrong port could send for ever.
        if read.len() > HEAD_BYTES_MAX {
            return Err(unreadable());
        }
    }
}

/// The status, the reason phrase behind a space, and the length of a head that is all there.
fn parse(read: &[u8]) -> Result<Option<(u16, String, usize)>, Reason> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut fields);
    match response.parse(read) {
        Ok(httparse::Status::Complete(length)) => {
            let phrase = response.reason.unwrap_or_default();
            let phrase: String = phrase.chars().filter(|c| !c.is_control()).collect();
            let phrase = match phrase.trim() {
                "" => String::new(),
                phrase => {
                    format!(" {}", phrase.chars().take(REASON_LETTERS_MAX).collect::<String>())
                }
            };
            Ok(Some((response.code.unwrap_or_default(), phrase, length)))
        }
        Ok(httparse::Status::Partial) => Ok(None),
        Err(_) => Err(unreadable()),
    }
}

fn unreadable() -> Reason {
    Reason::new(DialFault::ProxyRefused, "what it says is not an answer to CONNECT")
}
