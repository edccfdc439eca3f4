//! The files of a folder.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use axum::Router;
use axum::extract::{Path, Request};
use axum::routing::get;
use http::header;
use tempfile::TempDir;
use transom_web::{Folder, PortConfig};

use super::Port;

/// Serves the folder `ui`. The file next to it must not be served.
async fn served() -> (TempDir, Port) {
    let dir = tempfile::tempdir().unwrap();
    let ui = dir.path().join("ui");
    fs::create_dir_all(ui.join("assets/empty")).unwrap();
    fs::write(dir.path().join("secret"), "secret").unwrap();
    fs::write(ui.join("index.html"), "<html>").unwrap();
    fs::write(ui.join("main.js"), "run()").unwrap();
    fs::write(ui.join("assets/style.css"), "a{}").unwrap();
    fs::write(ui.join("assets/a b.svg"), "<svg/>").unwrap();
    symlink("main.js", ui.join("inside.js")).unwrap();
    symlink("../secret", ui.join("outside.js")).unwrap();
    symlink("..", ui.join("up")).unwrap();
    let folder = Folder::open(&ui).await.unwrap();
    let file = async move |Path(path): Path<String>, request: Request| folder.answer(&path, request).await;
    let router = Router::new().route("/{*path}", get(file));
    (dir, Port::start(PortConfig::new("apps", 0), router).await)
}

#[tokio::test]
async fn files_have_their_type_and_the_time_of_their_modification() {
    let (_dir, port) = served().await;
    for (path, kind, text) in [
        ("/index.html", "text/html", "<html>"),
        ("/main.js", "text/javascript", "run()"),
        ("/inside.js", "text/javascript", "run()"),
        ("/assets/style.css", "text/css", "a{}"),
        ("/assets/a%20b.svg", "image/svg+xml", "<svg/>"),
    ] {
        let answer = port.ask("GET", path).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        assert_eq!(answer.headers()[header::CONTENT_TYPE], kind);
        assert_eq!(answer.headers()[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
        let modified = answer.headers()[header::LAST_MODIFIED].clone();
        assert_eq!(answer.text().await.unwrap(), text);
        let unchanged = port.ask("GET", path).header(header::IF_MODIFIED_SINCE, modified);
        assert_eq!(unchanged.send().await.unwrap().status(), 304, "{path}");
        let head = port.ask("HEAD", path).send().await.unwrap();
        assert_eq!(head.headers()[header::CONTENT_LENGTH], text.len().to_string());
    }
    port.stop().await;
}

#[tokio::test]
async fn paths_that_leave_the_folder_and_folders_are_not_found() {
    let (dir, port) = served().await;
    let _socket = UnixListener::bind(dir.path().join("ui/socket")).unwrap();
    for path in [
        "/absent.js",
        "/main.js/",
        "/assets",
        "/assets/",
        "/assets/empty/",
        "/outside.js",
        "/up/secret",
        "/up/ui/main.js/../../../secret",
        "/%2e%2e/secret",
        "/..%2fsecret",
        "/assets/%2e%2e/%2e%2e/secret",
        "/assets/..%2f..%2fsecret",
        "/%2fetc/passwd",
        "/main.js%00",
        "/socket",
    ] {
        // Sent as raw text, because an HTTP client would resolve the dots first.
        let answer = port.send_line(&format!("GET {path} HTTP/1.1")).await;
        let is_invalid = path.contains("..") || path.contains('%');
        let (status, text) = if is_invalid {
            (
                "HTTP/1.1 400",
                r#"{"message":"the path of this request contains "#,
            )
        } else {
            ("HTTP/1.1 404", r#"{"message":"Not found: /"#)
        };
        assert!(answer.starts_with(status), "{path}: {answer}");
        assert!(answer.contains(text), "{path}: {answer}");
    }
    port.stop().await;
}

#[tokio::test]
async fn folder_without_a_readable_index_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let rejected = async |expected: &str| {
        let text = Folder::open(dir.path()).await.unwrap_err().to_string();
        assert_eq!(text, format!("{} {expected}", dir.path().display()));
    };
    rejected("has no index.html that can be read").await;
    let index = dir.path().join("index.html");
    fs::create_dir(&index).unwrap();
    rejected("has no index.html that can be read").await;
    fs::remove_dir(&index).unwrap();
    symlink("/etc/passwd", &index).unwrap();
    rejected("has no index.html that can be read").await;
    fs::remove_file(&index).unwrap();
    fs::write(&index, "<html>").unwrap();
    let folder = Folder::open(dir.path()).await.unwrap();
    drop(folder);
    // A file is no folder.
    assert!(Folder::open(&index).await.is_err());
    fs::remove_file(&index).unwrap();
    let absent = dir.path().join("absent");
    let text = Folder::open(&absent).await.unwrap_err().to_string();
    assert_eq!(text, format!("{} cannot be read", absent.display()));
}
