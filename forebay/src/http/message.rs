//! Messages of HTTP: what a reader asks for, and what it is told.

/// Headers of a request at the most.
const HEADERS_MAX: usize = 64;

/// A request of GET or HEAD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The path, without a query.
    pub path: String,
    /// The host that it was sent to, as the reader names it; `None` if it names none, or several.
    pub host: Option<String>,
    /// Whether the answer's body is wanted.
    pub(super) has_body: bool,
}

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status, with its words.
    pub status: &'static str,
    /// The type of its body.
    pub kind: &'static str,
    /// Further headers.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: String,
}

impl Asked {
    /// A request of GET.
    #[cfg(test)]
    pub fn get(path: &str, host: Option<&str>) -> Asked {
        Asked { path: path.to_owned(), host: host.map(str::to_owned), has_body: true }
    }

    /// The request at the beginning of these bytes, or the answer to what is none; `None` if more bytes are needed.
    pub(super) fn parse(head: &[u8]) -> Option<Result<Asked, Answer>> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(head) {
            Ok(httparse::Status::Partial) => return None,
            Err(_) => return Some(Err(Answer::text("400 Bad Request", "not a request of HTTP"))),
            Ok(httparse::Status::Complete(_)) => {}
        }
        let path = request.path.unwrap_or_default().split('?').next().unwrap_or_default().to_owned();
        let mut hosts = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
        let host = match (hosts.next(), hosts.next()) {
            (Some(host), None) => str::from_utf8(host.value).ok().map(str::to_owned),
            _ => None,
        };
        Some(match request.method {
            Some("GET") => Ok(Asked { path, host, has_body: true }),
            Some("HEAD") => Ok(Asked { path, host, has_body: false }),
            _ => Err(Answer::text("405 Method Not Allowed", "only GET and HEAD")),
        })
    }
}

impl Answer {
    /// An answer of one line of text.
    #[must_use]
    pub fn text(status: &'static str, line: &str) -> Answer {
        Answer { status, kind: "text/plain; charset=utf-8", headers: Vec::new(), body: format!("{line}\n") }
    }

    /// The lines before the body.
    pub(super) fn head(&self) -> String {
        let mut head = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\
             X-Content-Type-Options: nosniff\r\n",
            self.status,
            self.kind,
            self.body.len()
        );
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        head + "\r\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart() {
        let parse = |text: &str| Asked::parse(format!("{text}\r\n\r\n").as_bytes());
        let asked = |text: &str| parse(&format!("{text} HTTP/1.1\r\nHost: x:1")).expect("it is whole");
        let expected = |path: &str, has_body| {
            Ok(Asked { path: path.to_owned(), host: Some("x:1".to_owned()), has_body })
        };
        assert_eq!(asked("GET /metrics"), expected("/metrics", true));
        assert_eq!(asked("GET /metrics?x=1"), expected("/metrics", true));
        assert_eq!(asked("HEAD /metrics"), expected("/metrics", false));
        assert_eq!(asked("GET /../etc/passwd"), expected("/../etc/passwd", true));
        assert_eq!(asked("POST /metrics").expect_err("it is refused").status, "405 Method Not Allowed");
        assert_eq!(Asked::parse(b"GET /metrics HTTP/1.1\r\nHo"), None);
        let wrong = Asked::parse(b"\x16\x03\x01\x02\x00\x01").expect("it is wrong already");
        assert_eq!(wrong.expect_err("it is no request").status, "400 Bad Request");
        for hosts in ["", "Host: a\r\nhost: b\r\n", "Host: \u{ff}\r\n"] {
            let request = format!("GET / HTTP/1.1\r\n{hosts}\r\n").replace('\u{c3}', "");
            let asked = Asked::parse(request.as_bytes()).expect("it is whole").expect("it is a request");
            assert!(hosts.contains('\u{ff}') || asked.host.is_none(), "{hosts:?}: {asked:?}");
        }
    }

    #[test]
    fn an_answer_has_its_headers() {
        let mut answer = Answer::text("200 OK", "yes");
        answer.headers.push(("Cache-Control", "no-store".to_owned()));
        let head = answer.head();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("no-store\r\n\r\n"), "{head}");
        assert!(head.contains("Content-Length: 4\r\n"), "{head}");
    }
}
