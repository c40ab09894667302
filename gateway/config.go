package gateway

import (
	"net/netip"
	"time"
)

// Config is a checked configuration. Parse makes it; examples/gateway.yaml shows every key with
// its default.
type Config struct {
	// Devices are the interfaces, in the order of Desc.Port. Key "devices", required.
	Devices []Device

	// SNAT are the source addresses towards backends of services with `source: gateway`. They
	// belong to the gateway: it answers ARP and neighbour solicitations for them. Key "snat";
	// required, one per address family in use, if there is such a service.
	SNAT []netip.Addr

	// SNATPorts are the source ports on those addresses, cut into one equal range per loop. Key
	// "snat_ports", default 1024-65535. Narrow it when the kernel uses an SNAT address too.
	SNATPorts PortRange

	// Checksum says what becomes of packets whose TCP or UDP checksum is wrong. Key "checksum":
	// "forward" (default) keeps wrong ones wrong, for the receiver to judge; "drop".
	Checksum string

	Table    Table     // key "table"
	Metrics  Metrics   // key "metrics"
	Services []Service // key "services", required
}

// Device is one interface of the gateway.
type Device struct {
	Name   string // key "name", required: as `ip link` shows it
	Driver string // key "driver": "auto" (default), "afxdp", "afpacket" or "tap"
	Mode   string // key "mode", AF_XDP only: "auto" (default), "native" or "generic"

	// Queues is the number of receive queues to serve, the same on all devices: loop i serves queue
	// i of each. Key "queues", default 1, at most 64. With more than one the device has to steer
	// each loop's part of snat_ports to its queue (ethtool -N); replies that come to another loop
	// are dropped as no_flow.
	Queues int
}

// Table bounds the connections and says how long an idle one is remembered.
type Table struct {
	Size           int           // key "size": connections of all loops together, default 1000000
	TCPEstablished time.Duration // key "tcp.established", default 2h4m (RFC 5382 REQ-5)
	TCPSYN         time.Duration // key "tcp.syn": before the handshake is done, default 30s
	TCPFIN         time.Duration // key "tcp.fin": after a FIN or RST, default 30s
	UDP            time.Duration // key "udp", default 60s
}

// Metrics says where the Prometheus endpoint listens.
type Metrics struct {
	Listen string // key "listen", host:port; default "" is no endpoint
}

// Source says which source address backends see.
type Source string

// The values of Source.
const (
	SourceGateway Source = "gateway" // an SNAT address: replies come back by themselves
	SourceClient  Source = "client"  // the client's: backends must route their replies through the gateway
)

// Service is a set of addresses whose connections are spread over backends.
type Service struct {
	Name      string           // key "name", required and unique: the label of logs and metrics
	Protocol  string           // key "protocol": "tcp" (default) or "udp"
	Addresses []netip.AddrPort // key "address", required: ip:port, or a list of them
	Source    Source           // key "source": "gateway" (default) or "client"
	Removed   string           // key "removed": flows of a backend that a reload removes: "keep" (default) until they end, or "drop"
	HashSize  int              // key "hash_size": slots of the Maglev table, a prime, default 65537
	Backends  []Backend        // key "backends", required
	Health    *Health          // key "health"; absent: every backend counts as healthy
}

// Backend is one server of a service.
type Backend struct {
	Name      string           // key "name", unique in its service; default is the first address
	Addresses []netip.AddrPort // key "address", required: ip:port, or a list with one per address family
	Weight    int              // key "weight": share of new flows, 0 to 1000, default 1; 0 takes none and keeps the flows it has
}

// Health says how backends are probed.
type Health struct {
	Type     string        // key "type": "tcp" (default): a connection is made and closed
	Interval time.Duration // key "interval": between the starts of two probes, +-10 %; default 2s
	Timeout  time.Duration // key "timeout": default 1s, at most the interval
	Rise     int           // key "rise": successes in a row that make a backend healthy, default 2
	Fall     int           // key "fall": failures in a row that make it unhealthy, default 3
	Port     uint16        // key "port"; default is the backend's own; another one with `source: client`, which takes all replies from there
	Device   string        // key "device": probes leave by this one of the devices; default is the kernel's route
}

// PortRange is a closed range of ports.
type PortRange struct{ First, Last uint16 }

// Size returns the number of ports.
func (r PortRange) Size() int { return int(r.Last) - int(r.First) + 1 }

// Contains reports whether port lies inside.
func (r PortRange) Contains(port uint16) bool { return r.First <= port && port <= r.Last }

// loop returns the part of the range that belongs to loop i of n: the parts are disjoint and equal,
// so that a reply's destination port names its loop.
func (r PortRange) loop(i, n int) PortRange {
	each := r.Size() / n
	first := int(r.First) + i*each
	return PortRange{First: uint16(first), Last: uint16(first + each - 1)}
}

// Limits of a configuration, so that a mistyped one cannot take the machine's memory.
const (
	maxFileBytes = 16 << 20
	maxDevices   = 64
	maxQueues    = 64
	maxSNAT      = 256
	maxServices  = 65536
	maxBackends  = 4096 // of one service: the hash has 16 slots for each at its default size
	maxWeight    = 1000
	maxTable     = 1 << 28
	maxTimeout   = 30 * 24 * time.Hour
)

// newConfig returns the defaults.
func newConfig() *Config {
	return &Config{
		SNATPorts: PortRange{First: 1024, Last: 65535},
		Checksum:  "forward",
		Table: Table{
			Size:           1_000_000,
			TCPEstablished: 2*time.Hour + 4*time.Minute,
			TCPSYN:         30 * time.Second,
			TCPFIN:         30 * time.Second,
			UDP:            60 * time.Second,
		},
	}
}

func newDevice() Device { return Device{Driver: "auto", Queues: 1, Mode: "auto"} }

func newService() Service {
	return Service{Protocol: "tcp", Source: SourceGateway, Removed: "keep", HashSize: 65537}
}

func newHealth() *Health {
	return &Health{Type: "tcp", Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3}
}

// Loops returns the number of loops that the configuration asks for: one per queue.
func (c *Config) Loops() int { return c.Devices[0].Queues }
