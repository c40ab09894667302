package rdma_test

import (
	"context"
	"fmt"
	"io"
	"net/netip"

	"github.com/millrace/millrace/node"
	"github.com/millrace/millrace/node/nexthop"
	"github.com/millrace/millrace/rdma"
)

// A program writes into the memory of another one, on the address that its kernel has. What both exchange
// beforehand (endpoints, address and key of the memory) goes by any way they like.
func Example() {
	write := func(ctx context.Context, peer rdma.Endpoint, va uint64, rkey uint32) error {
		n, err := node.Open(node.Config{Devices: []node.Device{{Name: "eth1"}}})
		if err != nil {
			return err
		}
		defer n.Close()
		hops, err := nexthop.NewKernel([]string{"eth1"})
		if err != nil {
			return err
		}
		defer hops.Close()
		device, err := rdma.New(n, rdma.Config{Addr: netip.MustParseAddr("198.18.0.1"), Hops: hops})
		if err != nil {
			return err
		}
		if err := n.Add(device.Service()); err != nil {
			return err
		}
		go n.Run(ctx)

		pd := device.AllocPD()
		mr, err := pd.RegMR([]byte("written from afar"), rdma.LocalWrite)
		if err != nil {
			return err
		}
		cq, err := device.CreateCQ(16)
		if err != nil {
			return err
		}
		qp, err := pd.CreateQP(rdma.QPConfig{Service: rdma.RC, SendCQ: cq, RecvCQ: cq})
		if err != nil {
			return err
		}
		if err := qp.Connect(peer, rdma.ConnectConfig{}); err != nil {
			return err
		}
		err = qp.PostSend(&rdma.SendWR{Op: rdma.OpWrite, Flags: rdma.Signaled, List: []rdma.SGE{mr.SGE(0, 17)}, RemoteAddr: va, RKey: rkey})
		if err != nil {
			return err
		}
		var done [1]rdma.Completion
		if _, err := cq.Next(ctx, done[:]); err != nil {
			return err
		}
		fmt.Println(done[0].Status)
		return nil
	}
	_ = write
}

// A server echoes what it reads, to any number of clients, and a client speaks to it. Both are net.Conns.
func ExampleDial() {
	serve := func(device *rdma.Context) error {
		l, err := rdma.Listen(device, 7200, rdma.ConnConfig{})
		if err != nil {
			return err
		}
		defer l.Close()
		for {
			c, err := l.Accept()
			if err != nil {
				return err
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}
	ask := func(ctx context.Context, device *rdma.Context) (string, error) {
		c, err := rdma.Dial(ctx, device, netip.MustParseAddrPort("198.18.0.2:7200"), rdma.ConnConfig{})
		if err != nil {
			return "", err
		}
		defer c.Close()
		if err := c.WriteMessage([]byte("a message")); err != nil {
			return "", err
		}
		b := make([]byte, c.MaxMessage())
		n, err := c.ReadMessage(b)
		return string(b[:n]), err
	}
	_, _ = serve, ask
}
