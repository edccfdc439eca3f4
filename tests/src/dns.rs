//! A DNS client of a few lines: one question, one UDP packet, one answer.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use hickory_proto::serialize::binary::{BinDecodable, BinEncodable};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

const TIMEOUT: Duration = Duration::from_secs(5);

/// An answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Answer {
    pub code: ResponseCode,
    pub addresses: Vec<IpAddr>,
    /// Target and port of each SRV record.
    pub services: Vec<(String, u16)>,
}

/// Sends one query over UDP.
pub async fn ask(server: SocketAddr, name: &str, kind: RecordType) -> Result<Answer, String> {
    let query = question(name, kind)?;
    let socket = UdpSocket::bind("127.0.0.1:0").await.map_err(text)?;
    socket.connect(server).await.map_err(text)?;
    socket.send(&query).await.map_err(text)?;
    let mut packet = [0; 4096];
    let length = tokio::time::timeout(TIMEOUT, socket.recv(&mut packet))
        .await
        .map_err(text)?
        .map_err(text)?;
    read(&packet[..length])
}

/// Sends one query over TCP.
pub async fn ask_tcp(server: SocketAddr, name: &str, kind: RecordType) -> Result<Answer, String> {
    let query = question(name, kind)?;
    let exchange = async {
        let mut stream = TcpStream::connect(server).await?;
        stream
            .write_u16(u16::try_from(query.len()).unwrap_or(u16::MAX))
            .await?;
        stream.write_all(&query).await?;
        let length = stream.read_u16().await?;
        let mut packet = vec![0; usize::from(length)];
        stream.read_exact(&mut packet).await?;
        Ok::<_, std::io::Error>(packet)
    };
    read(
        &tokio::time::timeout(TIMEOUT, exchange)
            .await
            .map_err(text)?
            .map_err(text)?,
    )
}

fn question(name: &str, kind: RecordType) -> Result<Vec<u8>, String> {
    let name = Name::from_str(name).map_err(text)?;
    let mut message = Message::new(rand::random(), MessageType::Query, OpCode::Query);
    message.add_query(Query::query(name, kind));
    message.to_bytes().map_err(text)
}

fn read(packet: &[u8]) -> Result<Answer, String> {
    let message = Message::from_bytes(packet).map_err(text)?;
    let mut answer = Answer {
        code: message.metadata.response_code,
        addresses: vec![],
        services: vec![],
    };
    for record in &message.answers {
        match &record.data {
            RData::A(address) => answer.addresses.push(IpAddr::V4(address.0)),
            RData::AAAA(address) => answer.addresses.push(IpAddr::V6(address.0)),
            RData::SRV(service) => answer.services.push((service.target.to_string(), service.port)),
            _ => {}
        }
    }
    Ok(answer)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
