package config

import (
	"net/netip"
	"time"

	"github.com/millrace/millrace/gateway/health"
	"github.com/millrace/millrace/l7/auth"
)

// Config is a checked configuration. Parse makes it; examples/gateway.yaml shows every key with
// its default.
type Config struct {
	// Devices are the interfaces, in the order of Desc.Port. Key "devices", required by services and by `stack: devices`.
	Devices []Device

	// SNAT are the source addresses towards backends of services with `source: gateway`. They
	// belong to the gateway: it answers ARP and neighbour solicitations for them. Key "snat";
	// required, one per address family in use, if there is such a service.
	SNAT []netip.Addr

	// SNATPorts are the source ports on those addresses, cut into one equal range per loop. Key
	// "snat_ports", default 1024-65535. Narrow it when the kernel uses an SNAT address too.
	SNATPorts PortRange

	// Checksum defines what to do with packets whose TCP or UDP checksum is wrong. Key "checksum":
	// "forward" (default) keeps wrong ones wrong, for the receiver to drop; "drop".
	Checksum string

	// Engine defines what parses and verifies packets. Key "engine": "cpu" (default), "cuda" (an NVIDIA GPU;
	// the start fails where none can be used) or "auto".
	Engine string

	// ExtraProcessor gives the program one processor (GOMAXPROCS) more for each loop. Key "extra_processor".
	ExtraProcessor bool

	// HashKey keys the hash that selects backends. Key "hash_key_file": a file, relative to the configuration file's
	// folder, that only its owner and group may read. Gateways with the same key, names and weights select alike.
	HashKey HashKey

	// KernelFlows reports whether the kernel forwards established connections. Key "kernel_flows", default "off".
	KernelFlows KernelFlows

	CPUs       CPUs          // key "cpus"
	Spin       time.Duration // key "spin": how long a loop polls in vain before it sleeps, default 5us
	Tunnel     Tunnel        // key "tunnel"
	Sources    Sources       // key "sources": of all services
	Limits     Limits        // key "limits": of all services
	Defence    *Defence      // key "defence"; nil is none
	Table      Table         // key "table"
	Sync       *Sync         // key "sync": the gateway that connections are shared with; absent: none
	BGP        *BGP          // key "bgp"; nil: no address is announced to routers
	Admin      Admin         // key "admin"
	Metrics    Metrics       // key "metrics"
	Inspection Inspection    // key "inspection": rules that packets of services are inspected by
	Services   []Service     // key "services"; services or listeners are required

	Stack      Stack         // key "stack": whose connections those of listeners are, default "kernel"
	ProxyLoops int           // key "loops": event loops of listeners with `stack: kernel`, default "auto" (LoopsAuto); with `stack: devices` there is one per queue
	Network    Network       // key "network", with `stack: devices`
	AccessLog  AccessLog     // key "access_log"
	Tracing    *Tracing      // key "tracing"; nil is none
	RateLimits []RateLimit   // key "rate_limits": that listeners and routes name
	Caches     []Cache       // key "caches": of responses, that rules name
	Resolver   Resolver      // key "resolver": of the names of backends
	Listeners  []Listener    // key "listeners"
	Routes     []Route       // key "routes": where requests go
	TLSRoutes  []StreamRoute // key "tls_routes": where TLS goes that is passed through
	TCPRoutes  []StreamRoute // key "tcp_routes": where TCP goes
	Pools      []Pool        // key "pools"

	file    string             // it was read from
	lists   *SourceTables      // nil until they have been read
	defence *DefenceLists      // the same
	listAt  map[string]Problem // where a file or prefix of lists stands, without a message
	keyAt   Problem            // the same of hash_key_file

	adminToken []byte // see AdminToken

	inspAt map[string]Problem // the same of the files, variables and captures of inspection

	syncKeyAt  Problem            // and of sync.key_file
	passwordAt map[string]Problem // and of bgp.peers[].password_file
	named      []namedFile        // certificates, and what goes with them

	users map[string]*auth.Users // by the names of their files
	jwks  map[string][]auth.Key  // the same
	pages map[string][]byte      // the same
}

// KernelFlows reports whether the kernel forwards established connections without the loops.
type KernelFlows string

// The values of KernelFlows.
const (
	KernelFlowsOff  KernelFlows = "off"
	KernelFlowsAuto KernelFlows = "auto" // on the devices where it can
	KernelFlowsOn   KernelFlows = "on"   // on all devices; the start fails where it cannot
)

// HashKey is the secret that selects backends. ReadLists reads it from its file.
type HashKey struct {
	File    string
	Key     []byte // none: the selection is public
	Before  []byte // with Changed: the key of connections that may come from other gateways; none: they were selected publicly
	Changed bool
}

// String returns the file: the key shows up nowhere.
func (k HashKey) String() string { return k.File }

// GoString is String.
func (k HashKey) GoString() string { return k.File }

// CPUs selects which CPUs the loops run on. Key "cpus": "auto" (default: a core for each loop, near the
// first device, if there are more CPUs than loops), "none" (the scheduler's choice), or a list with
// one CPU per loop.
type CPUs struct {
	Auto bool
	List []int // empty with Auto and with none
}

// Tunnel configures how packets travel to the backends of services with `mode: ipip` or `mode: gue`.
type Tunnel struct {
	// Sources are the prefixes that outer source addresses come from, at most one per family. Each
	// flow has one of the prefix's addresses, so that receivers spread flows over their queues by
	// addresses (RSS). Key "source"; required for each family of backends in those modes.
	Sources []netip.Prefix
	GUEPort uint16 // key "gue_port": UDP destination port of GUE, default 6080
	TooBig  string // key "too_big": what to do with packets that the path of a tunnel does not take whole, default TooBigAnswer
}

// What a tunnel does with packets that are too big for its path. IPv6 packets of up to 1280 bytes leave in fragments
// either way.
const (
	TooBigAnswer   = "answer"   // by an ICMP error to the client
	TooBigFragment = "fragment" // the outer packet leaves in fragments
)

// Sources are lists of client prefixes that may or may not use services. The longest prefix that
// holds a client decides.
type Sources struct {
	Deny    []SourceList // key "deny"
	Allow   []SourceList // key "allow"
	Default string       // key "default": clients in no list: "allow" (default) or "deny"
}

// SourceList is one entry: a prefix, or a file with a prefix on each line.
type SourceList struct {
	Prefix netip.Prefix // the zero Prefix with a file
	File   string       // by its path, relative to the configuration file's folder
}

// Limits bound what one client may send. A client is an IPv4 address or an IPv6 /64 prefix. 0 is no
// limit.
type Limits struct {
	Packets     int           // key "packets": of one client per second
	Connections int           // key "connections": new ones of one client per second
	Burst       time.Duration // key "burst": how much may come at once, as a time at these rates; default 1s
	Clients     int           // key "clients" of the top-level limits: how many are followed, of all loops together; default 262144
}

// DefaultSocket is where a gateway listens for commands unless its configuration says otherwise.
const DefaultSocket = "/run/millrace/gateway.sock"

// Device is one interface of the gateway.
type Device struct {
	Name   string // key "name", required: as `ip link` shows it
	Driver string // key "driver": "auto" (default), "afxdp", "afpacket" or "tap"
	Mode   string // key "mode", AF_XDP only: "auto" (default), "native" or "generic"

	// Queues is the number of receive queues to serve, the same on all devices: loop i serves queue
	// i of each. A packet may come by any of them. Key "queues", default 1, at most 64;
	// "auto" (QueuesAuto, until SetQueues) is as many as the interface receives on.
	Queues int

	// Ring is the number of packets of a queue that may wait for its loop. Key "ring", a power of two, default 2048.
	Ring int

	Addresses []netip.Prefix // key "addresses", with `stack: devices`: of the gateway there, with the length of the network's prefix
}

// Table bounds the connections, and the time that an idle one is kept.
type Table struct {
	Size           int           // key "size": connections of all loops together, default 1000000
	TCPEstablished time.Duration // key "tcp.established", default 2h4m (RFC 5382 REQ-5)
	TCPSYN         time.Duration // key "tcp.syn": before the backend has answered, default 30s
	TCPSYNReceived time.Duration // key "tcp.syn_recv": before the client has acknowledged that, default 4m (RFC 5382 REQ-5)
	TCPHalfClosed  time.Duration // key "tcp.half_closed": after the FIN of one side, default 4m (RFC 5382 REQ-5)
	TCPFIN         time.Duration // key "tcp.fin": after the FINs of both sides, default 30s
	TCPReset       time.Duration // key "tcp.reset": after a RST, default 10s
	UDP            time.Duration // key "udp", default 2m (RFC 4787 REQ-5)
	HalfOpen       int           // key "half_open": connections of which only one side has been seen, default a quarter of Size
	KernelFlows    int           // key "kernel_flows": connections of all loops together that the kernel may forward at once, default 65536
	Fragments      int           // key "fragments": datagrams whose fragments are followed at once, default 16384
}

// Sync names the other of two gateways that share their connections, so that either can go on with them.
type Sync struct {
	Listen netip.AddrPort // key "listen", required: an address of this machine that the peer dials
	Peer   netip.AddrPort // key "peer", required: that of the other gateway
	Key    []byte         // key "key": 32 octets as hex, the same at both; ReadLists reads it from KeyFile where that is given
	Index  int            // key "index", required: 0 at one gateway and 1 at the other: which half of the SNAT ports it takes

	// KeyFile is a file with the key, relative to the configuration file's folder, that only its owner and group may read. Key
	// "key_file"; it or Key is required.
	KeyFile string

	Role *Role // key "role": one of both gateways answers for the addresses; absent: both do
}

// Metrics configures where the Prometheus endpoint listens.
type Metrics struct {
	Listen string // key "listen", host:port; default "" is no endpoint
}

// Source selects which source address backends see.
type Source string

// The values of Source.
const (
	SourceGateway Source = "gateway" // an SNAT address: replies come back by themselves
	SourceClient  Source = "client"  // the client's: backends must route their replies through the gateway
)

// Unknown defines what happens to TCP segments of a service that belong to no connection in the table and open none.
type Unknown string

// The values of Unknown.
const (
	UnknownAuto   Unknown = "auto"   // pick up where that is possible, reset elsewhere
	UnknownDrop   Unknown = "drop"   //
	UnknownReset  Unknown = "reset"  // the sender gets a TCP reset (RFC 9293 3.10.7.1), also a backend
	UnknownPickUp Unknown = "pickup" // the connection enters the table: direct modes and `source: client`
)

// PicksUp reports whether such a segment enters its connection in the table: its backend is known from the hash.
func (s *Service) PicksUp() bool {
	return (s.Mode.Direct() || s.Source == SourceClient) && s.Balance == BalanceMaglev && (s.Unknown == UnknownAuto || s.Unknown == UnknownPickUp)
}

// Mode configures how packets get to the backends of a service.
type Mode string

// The values of Mode.
const (
	ModeNAT  Mode = "nat"  // addresses and ports are rewritten; replies come back through the gateway
	ModeIPIP Mode = "ipip" // packets travel unchanged inside IPv4 or IPv6 (RFC 2003, RFC 2473); backends answer clients directly
	ModeGUE  Mode = "gue"  // the same inside UDP (draft-ietf-intarea-gue)
	ModeL2   Mode = "l2"   // packets travel unchanged to the backend's link address; backends answer clients directly
)

// Direct reports whether backends answer clients directly, with the service's own address and port.
func (m Mode) Direct() bool { return m != ModeNAT }

// Service is a set of addresses whose connections are spread over backends.
type Service struct {
	Name        string          // key "name", required and unique: the label of logs and metrics
	Protocol    string          // key "protocol": "tcp" (default) or "udp"
	Addresses   []AddrPorts     // key "address", required: ip:port, or a list of them; a port may be a range, or * for all
	Mode        Mode            // key "mode": "nat" (default), "ipip", "gue" or "l2"
	Source      Source          // key "source": "gateway" (default) or "client"
	Removed     string          // key "removed": flows of a backend that a reload removes: "keep" (default) until they end, or "drop"
	Unhealthy   string          // key "unhealthy": connections of a backend that fails its checks: "keep" (default) or "drop"
	HashSize    int             // key "hash_size": slots of the Maglev table, a prime; "auto" (default) is 1021, 8191, 65537 or 524287 by the backends and their weights
	SlowStart   time.Duration   // key "slow_start": how long a backend that comes (back) is filling: its share grows from nothing; default 0
	Drain       time.Duration   // key "drain": how long a draining backend keeps its connections; default 0 is until they end
	Reject      bool            // key "unavailable": without a backend, "drop" (default) or "reject": TCP reset, ICMP unreachable
	Unknown     Unknown         // key "unknown": TCP segments that belong to no connection and open none
	MSS         int             // key "mss": most that the MSS option of SYNs may say, bytes: a number, "auto" (MSSAuto: what fits the path) or "none" (0, default)
	Balance     Balance         // key "balance": how backends are selected for new connections
	Persistence *Persistence    // key "persistence"; absent: each connection is selected for by itself
	WhenFull    WhenFull        // key "when_full": new connections of a backend that has as many as it may
	QUIC        *QUIC           // key "quic", of UDP services: route by connection ID; absent: by address and port
	Sources     Sources         // key "sources": as the top-level ones, looked at after them
	Limits      Limits          // key "limits": as the top-level ones, for this service alone
	Announce    *Attributes     // key "announce"; nil: the addresses are not announced by BGP
	Backends    []Backend       // key "backends", required
	Health      *health.Check   // key "health"; absent: every backend counts as healthy
	Passive     *health.Passive // key "passive"; absent: no backend is ejected
}

// Balance configures how a backend is selected for a new connection.
type Balance string

// The values of Balance.
const (
	BalanceMaglev           Balance = "maglev"            // by the hash of the client's address and port: all gateways agree
	BalanceLeastConnections Balance = "least_connections" // the one of two, drawn by the hash, that has fewer for its weight
)

// WhenFull defines what happens to a new connection whose backend has Backend.MaxConnections.
type WhenFull string

// The values of WhenFull.
const (
	FullNext  WhenFull = "next"  // another backend takes it; when all are full Service.Reject counts
	FullReset WhenFull = "reset" // TCP reset, or ICMP port unreachable
	FullDrop  WhenFull = "drop"  // the packet is dropped, and a SYN comes again
)

// Persistence sends all connections of a client to the same backend of a service.
type Persistence struct {
	By      string // key "by": "client" (default)
	Prefix4 int    // key "prefix4": bits of an IPv4 address that make a client, default 32
	Prefix6 int    // key "prefix6": the same of IPv6, default 64
}

// MSSAuto is the Service.MSS that fits the path to the backend.
const MSSAuto = -1

// QUIC configures how connection IDs name a backend: draft-ietf-quic-load-balancers. Backends make their
// connection IDs by the same rules, with their ServerID.
type QUIC struct {
	Rotation int    // key "rotation": the configuration's number in the first octet, 0 to 6, default 0
	ServerID int    // key "server_id_length", octets, required
	Nonce    int    // key "nonce_length", octets, required
	Key      []byte // key "key": 16 octets as hex; absent: server IDs are not encrypted
}

// State is the state of a backend set by the configuration or an operator.
type State string

// The values of State. New connections go to backends that are filling or active. A packet in the middle of a
// TCP connection that is not in the table (it came by another gateway before, or the gateway was
// restarted) goes where it went before the change: to backends that are active or draining.
const (
	StateFilling  State = "filling"  // takes new connections, but not those that began before it came
	StateActive   State = "active"   //
	StateDraining State = "draining" // takes no new connections, but keeps those that it has
	StateInactive State = "inactive" // takes nothing
)

// Backend is one server of a service.
type Backend struct {
	Name           string      // key "name", unique in its service; default is the first address
	Addresses      []AddrPorts // key "address", required: ip:port, or a list with one per address family; ip alone, and port 0 here, with a direct mode, and where a service with a range keeps the port; a range is used by offset
	Weight         int         // key "weight": share of new flows, 0 to 1000, default 1; 0 takes none and keeps the flows it has
	MaxConnections int         // key "max_connections": open ones of all loops, default 0 is no limit
	State          State       // key "state": "active" (default), "filling", "draining" or "inactive"
	ServerID       []byte      // key "server_id", hex, with Service.QUIC: what its connection IDs carry
}

// Serves reports whether packets of one family go to the backend at its address ap. NAT needs the
// same family; direct modes take the address of that family if there is one, and the other otherwise.
func (b *Backend) Serves(m Mode, ap AddrPorts, is4 bool) bool {
	return ap.Addr().Is4() == is4 || m.Direct() && len(b.Addresses) == 1
}

// PortRange is a closed range of ports.
type PortRange struct{ First, Last uint16 }

// Size returns the number of ports.
func (r PortRange) Size() int { return int(r.Last) - int(r.First) + 1 }

// Contains reports whether port lies inside.
func (r PortRange) Contains(port uint16) bool { return r.First <= port && port <= r.Last }

// MaxWeight is the largest weight of a backend.
const MaxWeight = 1000

// Limits of a configuration, so that a mistyped one cannot take the machine's memory.
const (
	maxFileBytes   = 16 << 20
	maxDevices     = 64
	maxSNAT        = 256
	maxServices    = 65536
	maxBackends    = 4096 // of one service: the hash has 16 slots for each at its default size
	maxTable       = 1 << 28
	maxTimeout     = 30 * 24 * time.Hour
	maxRate        = 1_000_000_000
	maxLists       = 256
	maxClients     = 1 << 24
	maxKernelFlows = 1 << 20
	maxRanges      = 16384 // addresses and protocols with ranges of ports: of services, and of backends
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
			TCPSYNReceived: 4 * time.Minute,
			TCPHalfClosed:  4 * time.Minute,
			TCPFIN:         30 * time.Second,
			TCPReset:       10 * time.Second,
			UDP:            2 * time.Minute,
			KernelFlows:    65536,
			Fragments:      16384,
		},
		CPUs:        CPUs{Auto: true},
		Engine:      "cpu",
		KernelFlows: KernelFlowsOff,
		Spin:        defaultSpin,
		Tunnel:      Tunnel{GUEPort: 6080, TooBig: TooBigAnswer},
		Sources:     Sources{Default: "allow"},
		Limits:      Limits{Burst: time.Second, Clients: 1 << 18},
		Admin:       Admin{Socket: DefaultSocket},
		Stack:       StackKernel,
		AccessLog:   newAccessLog(),
		Resolver:    newResolver(),
		Inspection:  newInspection(),
	}
}

func newPersistence() Persistence { return Persistence{By: "client", Prefix4: 32, Prefix6: 64} }

func newDevice() Device { return Device{Driver: "auto", Queues: 1, Ring: DefaultRing, Mode: "auto"} }

func newService() Service {
	return Service{
		Balance: BalanceMaglev, WhenFull: FullNext,
		Protocol: "tcp", Mode: ModeNAT, Source: SourceGateway, Removed: "keep", Unhealthy: "keep", Unknown: UnknownAuto,
		Sources: Sources{Default: "allow"}, Limits: Limits{Burst: time.Second},
	}
}

// MaxQueues is the number of queues that a device may have, and so how many loops there may be.
const MaxQueues = 64

// Bounds and default of Device.Ring. They are those of pmd/device, which a test of gateway/daemon holds: a schema
// imports no driver.
const (
	MinRing     = 512
	DefaultRing = 2048
	MaxRing     = 32768
)

// defaultSpin is stack.DefaultSpin, which a test of gateway/daemon holds: a schema imports no loop.
const defaultSpin = 5 * time.Microsecond

// QueuesAuto is the Device.Queues that the machine has to say.
const QueuesAuto = 0

// SetQueues settles `queues: auto`.
func (c *Config) SetQueues(n int) {
	for i := range c.Devices {
		if c.Devices[i].Queues == QueuesAuto {
			c.Devices[i].Queues = n
		}
	}
}

// Loops returns the number of loops that the configuration requests: one per queue; 0 while it is not
// settled, and without devices.
func (c *Config) Loops() int {
	if len(c.Devices) == 0 {
		return 0
	}
	return c.Devices[0].Queues
}

// Gateways returns how many gateways share the SNAT ports.
func (c *Config) Gateways() int {
	if c.Sync != nil {
		return 2
	}
	return 1
}
