// Package rdma is RDMA over Ethernet (RoCEv2) in user space, with verbs' own words: contexts, protection domains, memory
// regions, completion queues, queue pairs.
//
//	ctx, err := rdma.New(n, rdma.Config{Addr: addr, Hops: hops})   // n is a node.Node
//	err = n.Add(ctx.Service())
//	pd := ctx.AllocPD()
//	mr, err := pd.RegMR(buf, rdma.LocalWrite|rdma.RemoteWrite)
//	cq, err := ctx.CreateCQ(256)
//	qp, err := pd.CreateQP(rdma.QPConfig{Service: rdma.RC, SendCQ: cq, RecvCQ: cq})
//	id, err := ctx.ConnectCM(background, addrPort, qp, rdma.ConnParam{})
//	err = qp.PostSend(&rdma.SendWR{Op: rdma.OpWrite, List: []rdma.SGE{mr.SGE(0, 4096)}, RemoteAddr: va, RKey: rkey})
//	n := cq.Poll(completions[:])
//
// ConnectCM and ListenCM make connections by RDMA-CM, as programs with librdmacm do. QP.Connect takes numbers that both sides
// exchanged by any other way.
//
// Dial and Listen are a message connection and net.Conn over all of it.
//
// A context claims UDP port 4791 of one address, beside a host, a gateway or the kernel on the same devices, and belongs to
// one loop of the node. Its methods may be called from any goroutine: they enter that loop, as those of sockets do. Packets go from
// registered memory into frames in one pass, which computes the ICRC, and from frames to registered memory in
// another, after the ICRC was verified.
//
// Package transport holds the protocol, package roce the packets, package memory the regions, package cm the communication manager.
// Unmodified programs and memory of GPUs are not served yet.
package rdma
