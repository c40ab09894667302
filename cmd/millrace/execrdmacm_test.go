package main

import (
	"os"
	"strings"
	"testing"
	"time"

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

// foreign are programs of others, which `make interop-rdma` installs.
var foreign = []struct {
	server, client, want string
}{
	{"ib_write_bw -R -n 50", "ib_write_bw -R -n 50 198.18.0.1", "#iterations"},
	{"ib_read_lat -R -n 50", "ib_read_lat -R -n 50 198.18.0.1", "#iterations"},
	{"ib_atomic_bw -R -n 50", "ib_atomic_bw -R -n 50 198.18.0.1", "#iterations"},
	{"ib_send_bw -R -n 50 -c UD", "ib_send_bw -R -n 50 -c UD 198.18.0.1", "#iterations"},
	{"ib_write_bw -R -n 50 -q 3", "ib_write_bw -R -n 50 -q 3 198.18.0.1", "#iterations"},
	{"ib_send_bw -R -n 50 -r 64 --use-srq", "ib_send_bw -R -n 50 -r 64 --use-srq 198.18.0.1", "#iterations"},
	{"fi_pingpong -p verbs -e msg -I 20", "fi_pingpong -p verbs -e msg -I 20 198.18.0.1", "64k     20      =20"},
	{"fi_pingpong -p verbs -e dgram -I 20", "fi_pingpong -p verbs -e dgram -I 20 198.18.0.1", "1k      20      =20"},
	{"fi_pingpong -p verbs;ofi_rxm -e rdm -I 20", "fi_pingpong -p verbs;ofi_rxm -e rdm -I 20 198.18.0.1", "64k     20      =20"},
}

// TestExecRDMAForeign runs them between two hosts.
func TestExecRDMAForeign(t *testing.T) {
	if os.Getenv("MILLRACE_RDMA_FOREIGN") == "" {
		t.Skip("programs of libfabric and perftest over RDMA-CM, and qperf: `make interop-rdma` installs and runs them")
	}
	h := newRDMAHosts(t, "mr-xrfor")
	for _, c := range foreign {
		t.Run(c.client, func(t *testing.T) {
			server := strings.Fields(c.server)
			testnet.Program(t, server[0])
			g := *h
			g.t = t
			if got, _ := g.serve(server, 1, strings.Fields(c.client)...); !strings.Contains(got, c.want) {
				t.Error(got)
			}
		})
	}
	t.Run("qperf", func(t *testing.T) {
		testnet.Program(t, "qperf")
		server, _ := h.start(0, "qperf")
		defer func() { _ = server.Process.Kill(); _ = server.Wait() }()
		for end := time.Now().Add(60 * time.Second); ; time.Sleep(100 * time.Millisecond) {
			cmd, out := h.start(1, "qperf", "-t", "1", "-cm1", "198.18.0.1", "rc_bw", "rc_lat", "rc_rdma_write_bw", "rc_rdma_read_lat", "rc_compare_swap_mr")
			if code := exitCode(t, cmd.Wait()); code == 0 && strings.Contains(out.String(), "msg_rate") {
				break
			}
			if time.Now().After(end) {
				t.Fatal(out)
			}
		}
	})
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
