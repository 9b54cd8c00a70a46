use engine::effect::*; use engine::units::*; use lab::disk::faults::Kind; use lab::world::*;
#[test] fn probe() { 
 for (cl, ol) in [((20_000,200_000),(50_000,2_000_000)), ((20_000,200_000),(20_000,200_000)), ((20_000,200_000),(1_000,2_000)), ((1_000_000,2_000_000),(1_000,2_000))] {
 let mut s = Setup::new(3); s.volumes = vec![VolumeSetup{sectors: 4096*8, mode: WriteMode::Writeback};2];
 s.cache_latency = Latency{least_ns: cl.0, most_ns: cl.1}; s.origin_latency = Latency{least_ns: ol.0, most_ns: ol.1};
 let mut w = World::new(s);
 w.origin(0).faults.fail_always(Kind::Write, Errno::IO);
 for n in 0..100u64 { if n%5==0 {w.write_fua(0, blocks(n*16,16))} else {w.write(0, blocks(n*16,16))}; }
 let mut seen=false;
 while w.now_ns() < 25*Nanos::SECOND { w.step().unwrap(); let st=w.engine().unwrap().status(); let v=&st.volumes[0]; if !seen && v.origin_errors>0 {seen=true; eprintln!("first error at {} dirty {} out {}", w.now_ns(), v.dirty_bytes/65536, w.outstanding());} }
 let st=w.engine().unwrap().status(); let v=&st.volumes[0];
 eprintln!("{cl:?} {ol:?}: out {} dirty {} limit {:?} {:?}", w.outstanding(), v.dirty_bytes/65536, v.dirty_limit_bytes.map(|b|b/65536), v.state);
 }}
