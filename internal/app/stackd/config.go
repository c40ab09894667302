package stackd

import (
	"net"
	"net/netip"
	"time"

	"github.com/millrace/millrace/internal/app/service"
	"github.com/millrace/millrace/internal/strictyaml"
	"github.com/millrace/millrace/node"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/tcp"
)

// Config is a checked configuration. Parse makes it; examples/stack.yaml shows every key with its default.
type Config struct {
	Devices   []Device   // key "devices", required: the interfaces of the host
	Routes    []Route    // key "routes": beside those that follow from addresses
	Neighbors []Neighbor // key "neighbors": known without asking
	Engine    string     // key "engine": "cpu" (default), "cuda" or "auto": what parses headers
	CPUs      node.CPUs  // key "cpus": "none" (default), "auto" (a core for each loop), or a list, one for each loop

	// ExtraProcessor gives the program one processor (GOMAXPROCS) more for each loop. Key "extra_processor".
	ExtraProcessor bool

	TCP      TCP       // key "tcp"
	Services []Service // key "services"
	Control  Control   // key "control"
	Shim     Shim      // key "shim"
	RDMA     RDMA      // key "rdma"
	Metrics  Metrics   // key "metrics"
}

// Take selects the packets of an interface that are the host's.
type Take string

// The values of Take.
const (
	TakeAuto      Take = "auto"      // TakeAll where the kernel has no address there but link-local ones, else TakeAddresses
	TakeAll       Take = "all"       // every packet: the kernel's stack gets none
	TakeAddresses Take = "addresses" // packets to the host's addresses, and ARP and neighbour discovery for them
)

// Device is one interface of the host.
type Device struct {
	Name      string         // key "name", required: as `ip link` shows it
	Driver    string         // key "driver": "auto" (default), "afxdp", "afpacket" or "tap"
	Mode      string         // key "mode", AF_XDP only: "auto" (default), "native" or "generic"
	Queues    int            // key "queues", the same on all devices: a loop for each; default 1
	Ring      int            // key "ring": packets of a queue that may wait for its loop, a power of two; default device.StackRing
	Take      Take           // key "take", default TakeAuto
	Addresses []netip.Prefix // key "addresses": with the length of the network's prefix
	DHCP      bool           // key "dhcp": ask for an IPv4 address; wants TakeAll
	SLAAC     bool           // key "slaac": take IPv6 addresses and routes from routers; wants TakeAll
}

// Route is a route to a network by way of a neighbour, or on a link.
type Route struct {
	To     netip.Prefix // key "to", required; "default" stands for all of Via's family
	Via    netip.Addr   // key "via"; zero is on link
	Device string       // key "device"; "" is the device with Via on its network, or the only one
	Metric uint32       // key "metric": of routes with the same prefix the smallest is used
}

// Neighbor is an entry of the neighbour table.
type Neighbor struct {
	Address netip.Addr       // key "address", required
	MAC     net.HardwareAddr // key "mac", required
	Device  string           // key "device"; "" as of a Route
}

// TCP are the defaults of connections.
type TCP struct {
	Options     tcp.Options
	Nagle       bool  // key "nodelay" is false: small segments wait (RFC 9293 3.7.4)
	Memory      int64 // key "memory": bytes of all buffers; 0 is 64 MiB
	Connections int   // key "connections": most at once; 0 is what package tcp says
}

// Service is a built-in service at a port.
type Service struct {
	Kind    service.Kind   // key "service", required
	Port    uint16         // key "port", default the customary one
	Address netip.Addr     // key "address": of the host; default any
	Limits  service.Limits // keys "connections" and "idle"
}

// Control configures the socket by which the running host is controlled.
type Control struct {
	Socket string // key "socket": path of the unix socket, default DefaultSocket; "" is none
}

// Metrics configures where the Prometheus endpoint listens.
type Metrics struct {
	Listen string // key "listen": address and port of the kernel's stack; "" (default) is none
}

// DefaultSocket is where a host listens for questions unless its configuration says otherwise.
const DefaultSocket = "/run/millrace/stack.sock"

// Bounds of a configuration, so that a mistyped one cannot take the machine's memory.
const (
	maxFileBytes = 1 << 20
	maxDevices   = 16
	maxQueues    = 64
	maxAddresses = 64 // of one device
	maxRoutes    = 4096
	maxNeighbors = 1024
	maxServices  = 256
	maxGroups    = 64
	maxServers   = 16
	minBuffer    = 4 << 10
	maxBuffer    = 1 << 30
	maxMemory    = 1 << 40
	maxIdle      = 30 * 24 * time.Hour
)

// New returns the defaults, without a device.
func New() *Config {
	return &Config{Engine: "cpu", Control: Control{Socket: DefaultSocket}, Shim: Shim{Socket: autoSocket}, RDMA: RDMA{Socket: autoSocket}}
}

// NewDevice returns a device with its defaults.
func NewDevice(name string) Device {
	return Device{Name: name, Driver: "auto", Mode: "auto", Queues: 1, Ring: device.StackRing, Take: TakeAuto}
}

// AllServices returns every service at its customary port.
func AllServices() (list []Service) {
	for _, k := range service.Kinds {
		list = append(list, Service{Kind: k, Port: k.Port()})
	}
	return list
}

// device returns the place of a device, -1 where there is none of the name.
func (c *Config) device(name string) int {
	for i := range c.Devices {
		if c.Devices[i].Name == name {
			return i
		}
	}
	return -1
}

// port returns the place of the device by which a is reached on link: the one that is named, or the one with a network
// that holds a, or the only one; -1 where that does not say.
func (c *Config) port(name string, a netip.Addr) int {
	if name != "" {
		return c.device(name)
	}
	for i := range c.Devices {
		for _, p := range c.Devices[i].Addresses {
			if p.Contains(a) {
				return i
			}
		}
	}
	if len(c.Devices) == 1 {
		return 0
	}
	return -1
}

// Problem is one error in a configuration file, or in flags.
type Problem = strictyaml.Problem

// ConfigError holds every problem of a configuration, in the order of the file.
type ConfigError = strictyaml.Error
