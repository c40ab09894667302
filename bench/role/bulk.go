package role

import (
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// bulkPort is the port of an iperf3 server.
const BulkPort = 5201

// openBulk plays iperf3's server; its arguments are the program's. It counts the bytes that arrived,
// and those that it has sent and the client has acknowledged, by the kernel's own counts of each connection (TCP_INFO).
func openBulk(o roleOptions) (roleWork, error) {
	w, err := openRun(o)
	if err != nil {
		return w, err
	}
	var mu sync.Mutex
	var most uint64 // connections that have ended are seen no more
	w.counts = func() (map[string]uint64, error) {
		mu.Lock()
		defer mu.Unlock()
		n, err := moved(BulkPort)
		most = max(most, n)
		return map[string]uint64{"bytes": most}, err
	}
	return w, nil
}

// moved sums the bytes that have come in and arrived at the other end on the open connections to a port.
func moved(port uint16) (sum uint64, err error) {
	conns, err := netlink.SocketDiagTCPInfo(unix.AF_INET)
	if err != nil {
		return 0, err
	}
	more, err := netlink.SocketDiagTCPInfo(unix.AF_INET6) // iperf3 listens on both by one socket
	if err != nil {
		return 0, err
	}
	for _, c := range append(conns, more...) {
		if c.InetDiagMsg != nil && c.TCPInfo != nil && c.InetDiagMsg.ID.SourcePort == port {
			sum += c.TCPInfo.Bytes_received + c.TCPInfo.Bytes_acked
		}
	}
	return sum, nil
}
