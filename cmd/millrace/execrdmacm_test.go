package main

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// managed are programs of librdmacm: a server, a client, and what the client prints.
var managed = []struct {
	server, client, want string
}{
	{"rping -s -a 198.18.0.1 -C 10 -v", "rping -c -a 198.18.0.1 -C 10 -v", "rdma-ping-9:"},
	{"rping -s -a 0.0.0.0 -p 7200 -C 3 -S 20000", "rping -c -a 198.18.0.1 -p 7200 -C 3 -S 20000 -v", "rdma-ping-2:"},
	{"ucmatose -c 5 -C 20", "ucmatose -s 198.18.0.1 -c 5 -C 20", "return status 0"},
	{"ucmatose -m", "ucmatose -m -s 198.18.0.1", "return status 0"},
	{"udaddy -C 20", "udaddy -C 20 -s 198.18.0.1", "return status 0"},
	{"rdma_xserver -c r", "rdma_xclient -c r -s 198.18.0.1", "rdma_xclient: end 0"},
	{"rstream -S 50000 -C 50 -T v", "rstream -s 198.18.0.1 -S 50000 -C 50 -T v", "custom    48k     50"},
	{"rstream -S 3000 -C 50 -T v -T b", "rstream -s 198.18.0.1 -S 3000 -C 50 -T v -T b", "custom    2.9k    50"},
	{"rstream -S 3000 -C 50 -T v -T n", "rstream -s 198.18.0.1 -S 3000 -C 50 -T v -T n", "custom    2.9k    50"},
	{"rstream -S 1000000 -C 2 -T v -T a", "rstream -s 198.18.0.1 -S 1000000 -C 2 -T v -T a", "custom    "},
	{"rdma_server", "rdma_client -s 198.18.0.1", "rdma_client: end 0"},
}

// TestExecRDMACM connects unmodified programs by librdmacm, between two hosts and between two programs of one.
func TestExecRDMACM(t *testing.T) {
	testnet.Program(t, "rping", "ucmatose", "udaddy", "rstream", "rdma_server")
	h := newRDMAHosts(t, "mr-xrcm")
	for client, where := range []string{"one host", "two hosts"} {
		for _, c := range managed {
			t.Run(where+" "+c.client, func(t *testing.T) {
				g := *h
				g.t = t
				if got, _ := g.serve(strings.Fields(c.server), client, strings.Fields(c.client)...); !strings.Contains(got, c.want) {
					t.Error(got)
				}
			})
		}
	}
}
