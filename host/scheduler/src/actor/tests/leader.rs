//! A subscription that follows the leading master in a real ZooKeeper. Needs the Debian packages
//! `zookeeper` and `default-jre-headless`, and fails without them.

use std::time::{Duration, Instant};

use transom_testkit::zookeeper::{Acls, ZooKeeper, create_path, register};

use super::master::Master;
use super::rig::Rig;

#[tokio::test]
async fn subscription_moves_to_the_new_leading_master() {
    let server = ZooKeeper::start().await;
    let masters = server.client().await;
    create_path(&masters, "/mesos", Acls::anyone_all()).await;
    // The first leader is the rig's own master.
    let zookeeper = format!("zk://{}/mesos", server.address());
    let mut rig = Rig::with_masters(zookeeper, Duration::from_mins(10)).await;
    let first = register(&masters, "/mesos", rig.master.address.port()).await;
    assert_eq!(rig.event_text().await, "registered F-1");

    let second = Master::start(rig.store.clone()).await;
    register(&masters, "/mesos", second.address.port()).await;
    let began = Instant::now();
    masters.delete(&format!("/mesos/{first}"), None).await.unwrap();
    let call = second.call("SUBSCRIBE", 1).await;
    println!("subscribed with the new leader after {:?}", began.elapsed());
    assert_eq!(
        call.body["subscribe"]["framework_info"]["id"]["value"], "F-1",
        "{}",
        call.body
    );
    assert_eq!(rig.event_text().await, "disconnected");
    assert_eq!(rig.event_text().await, "reregistered");

    // The leader ends the stream. The next attempt is minutes away, but the registration of another
    // leader is followed immediately.
    second.hang_up();
    assert_eq!(rig.event_text().await, "disconnected");
    let third = Master::start(rig.store.clone()).await;
    let began = Instant::now();
    register(&masters, "/mesos", third.address.port()).await;
    for node in masters.list_children("/mesos").await.unwrap() {
        let (data, _) = masters.get_data(&format!("/mesos/{node}")).await.unwrap();
        let port = format!("\"port\":{}", second.address.port());
        if String::from_utf8(data).unwrap().contains(&port) {
            masters.delete(&format!("/mesos/{node}"), None).await.unwrap();
        }
    }
    third.call("SUBSCRIBE", 1).await;
    println!("subscribed with the third leader after {:?}", began.elapsed());
    assert_eq!(rig.event_text().await, "reregistered");
    rig.token.cancel();
    rig.scheduler.stopped().await;
}
