package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// The service's addresses, in the client's subnet: the gateway answers ARP and neighbour
// solicitations for them.
const (
	service4 = "198.18.0.10"
	service6 = "2001:db8::10"
)

// wire is one veth pair with the addresses of its ends.
type wire struct {
	a, b         *testnet.Namespace
	nameA, nameB string
	addrA, addrB []string
}

// topology is the network of the drawing in main.go.
type topology struct {
	net             *testnet.Net
	client, gateway *testnet.Namespace
	servers         []*testnet.Namespace
	serverNames     []string
}

// build makes the namespaces, joins them and sets the routes.
func build() (*topology, error) {
	n, err := testnet.New("mr-lab")
	if err != nil {
		return nil, err
	}
	t := &topology{net: n, client: n.Namespace("client"), gateway: n.Namespace("gateway"), serverNames: []string{"one", "two"}}
	for _, name := range t.serverNames {
		t.servers = append(t.servers, n.Namespace(name))
	}
	if err := t.join(); err != nil {
		return nil, fmt.Errorf("%w (closing: %v)", err, n.Close())
	}
	return t, nil
}

func (t *topology) join() error {
	wires := []wire{{
		t.client, t.gateway, "eth0", "front",
		[]string{"198.18.0.2/24", "2001:db8::2/64"},
		[]string{"198.18.0.1/24", "2001:db8::1/64"},
	}}
	for i, srv := range t.servers {
		wires = append(wires, wire{
			t.gateway, srv, fmt.Sprintf("back%d", i+1), "eth0",
			[]string{fmt.Sprintf("198.18.%d.1/24", i+1), fmt.Sprintf("2001:db8:%d::1/64", i+1)},
			[]string{fmt.Sprintf("198.18.%d.2/24", i+1), fmt.Sprintf("2001:db8:%d::2/64", i+1)},
		})
	}
	for _, w := range wires {
		if err := w.up(t.net); err != nil {
			return err
		}
	}
	for i, srv := range t.servers {
		if err := srv.Route("default", fmt.Sprintf("198.18.%d.1", i+1)); err != nil {
			return err
		}
		if err := srv.Route("default", fmt.Sprintf("2001:db8:%d::1", i+1)); err != nil {
			return err
		}
	}
	return nil
}

// up makes the link and brings both ends up as a real wire's: checksums filled in, no segments
// larger than the MTU.
func (w wire) up(n *testnet.Net) error {
	if err := n.Link(w.a, w.nameA, w.b, w.nameB); err != nil {
		return err
	}
	for _, end := range []struct {
		ns    *testnet.Namespace
		name  string
		addrs []string
	}{{w.a, w.nameA, w.addrA}, {w.b, w.nameB, w.addrB}} {
		if err := end.ns.NoOffload(end.name); err != nil {
			return err
		}
		if err := end.ns.Up(end.name, end.addrs...); err != nil {
			return err
		}
	}
	return nil
}

// The gateway's own addresses, on which it ends connections.
const (
	gateway4 = "198.18.0.1"
	gateway6 = "2001:db8::1"
)

// config is the gateway's configuration for the lab, with the driver and the folder's control socket.
const config = `# Two services at L4, and listeners at L7, each on IPv4 and IPv6, over two servers.
devices:
  - {name: front, driver: %[1]s}
  - {name: back1, driver: %[1]s}
  - {name: back2, driver: %[1]s}
snat: [198.18.0.11, "2001:db8::11"]
metrics: {listen: "127.0.0.1:9100"}
admin: {socket: %[2]s}
services:
  - name: web
    protocol: tcp
    address: ["198.18.0.10:80", "[2001:db8::10]:80"]
    backends:
      - {name: one, address: ["198.18.1.2:8080", "[2001:db8:1::2]:8080"]}
      - {name: two, address: ["198.18.2.2:8080", "[2001:db8:2::2]:8080"]}
    health: {interval: 300ms, timeout: 250ms, rise: 1, fall: 2}
  - name: echo
    protocol: udp
    address: ["198.18.0.10:53", "[2001:db8::10]:53"]
    backends:
      - {name: one, address: ["198.18.1.2:5353", "[2001:db8:1::2]:5353"]}
      - {name: two, address: ["198.18.2.2:5353", "[2001:db8:2::2]:5353"]}
    health: {interval: 300ms, timeout: 250ms, rise: 1, fall: 2, port: 8080}
stack: kernel
loops: 1
listeners:
  - {name: plain, address: ["198.18.0.1:80", "[2001:db8::1]:80"], protocol: HTTP}
  - name: secure
    address: ["198.18.0.1:443", "[2001:db8::1]:443"]
    protocol: HTTPS
    versions: ["1.1", "2", "3"]
    tls: {certificates: [{cert: site.pem, key: site.key}]}
routes:
  - name: shop
    rules:
      - {name: calls, matches: [{path: {value: /lab.Names}}], backend_refs: [{name: calls}]}
      - {name: pages, backend_refs: [{name: pages}]}
pools:
  - name: pages
    backends: [{name: one, address: "198.18.1.2:8080"}, {name: two, address: "198.18.2.2:8080"}]
  - name: calls
    protocol: H2C
    backends: [{name: one, address: "198.18.1.2:8080"}, {name: two, address: "198.18.2.2:8080"}]
`

// writeConfig writes the gateway's configuration and certificate into a folder and returns the file.
func writeConfig(dir, driver string) (string, error) {
	if err := writeCertificate(dir); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "gateway.yaml")
	return path, os.WriteFile(path, fmt.Appendf(nil, config, driver, filepath.Join(dir, "gateway.sock")), 0o644)
}
