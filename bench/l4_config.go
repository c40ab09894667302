package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/millrace/millrace/bench/role"
)

// gatewayConfig is what the configurations of our gateway differ in.
type gatewayConfig struct {
	Driver   string // of both devices
	Table    int    // connections
	HalfOpen int    // of them from whom nothing came back; 0 is the default
	Queues   int    // 0 is 1
	Services int    // of UDP, on ports from udpPort on
	Backends []string
	SNAT     []string
	Ports    string // of SNAT addresses; empty is the default
	Deny     string // file of listed prefixes; empty is none
	Kernel   bool   // the kernel forwards established connections
	Rules    string // file of inspection rules, in mode detect; empty is none
	Home     bool   // variables of addresses in them are any
	Engine   string // empty is the default
	Apart    bool   // datagrams are not joined
}

// gatewayYAML is the configuration of our gateway in every measure.
var gatewayYAML = template.Must(template.New("gateway").Funcs(template.FuncMap{"join": strings.Join}).Parse(`devices:
  - {name: {{.Front}}, driver: {{.Driver}}{{if .Queues}}, queues: {{.Queues}}{{end}}}
  - {name: {{.Back}}, driver: {{.Driver}}{{if .Queues}}, queues: {{.Queues}}{{end}}}
cpus: none
{{- if .Engine}}
engine: {{.Engine}}
{{- end}}
{{- if .Apart}}
limits: {packets: 1000000000}
{{- end}}
{{- if .Rules}}
inspection: {alerts: {file: alerts.json}{{if .Home}}, variables: [{{range $i, $n := .Networks}}{{if $i}}, {{end}}"{{$n}}=any"{{end}}]{{end}}, policies: [{name: all, rules: {{.Rules}}}]}
{{- end}}
{{- if .Kernel}}
kernel_flows: on
{{- end}}
admin: {socket: ""}
snat: [{{join .SNAT ", "}}]
{{- if .Ports}}
snat_ports: {{.Ports}}
{{- end}}
table: {size: {{.Table}}{{if .HalfOpen}}, half_open: {{.HalfOpen}}{{end}}}
{{- if .Deny}}
sources: {deny: [{{.Deny}}]}
{{- end}}
services:
  - name: web
    address: {{.Address}}:80
    backends: [{address: {{.Backend}}:8080}]
  - name: bulk
    address: {{.Address}}:5201
    backends: [{address: {{.Backend}}:5201}]
{{- range $i, $port := .UDPPorts}}
  - name: udp{{$i}}
    protocol: udp
    address: {{$.Address}}:{{$port}}
    hash_size: {{$.HashSize}}
    backends: [{{range $j, $b := $.Backends}}{{if $j}}, {{end}}{address: {{$b}}:5353}{{end}}]
{{- end}}
`))

// render returns the file. Services beyond the first have small tables, all of one size.
func (c gatewayConfig) render() (string, error) {
	data := struct {
		gatewayConfig
		Front, Back, Address, Backend string
		HashSize                      int
		UDPPorts                      []int
		Networks                      []string
	}{Networks: role.InspectionNetworks(), gatewayConfig: c, Front: role.FrontDev, Back: role.BackDev, Address: serviceAddr, Backend: backendAddr, HashSize: 65537}
	if c.Services > 1 {
		data.HashSize = 251
	}
	for i := range c.Services {
		data.UDPPorts = append(data.UDPPorts, udpPort+i)
	}
	var out strings.Builder
	err := gatewayYAML.Execute(&out, data)
	return out.String(), err
}

// usual is one service, one backend and a table as most sites have.
func usual(driver string) gatewayConfig {
	return gatewayConfig{
		Driver: driver, Table: 1 << 17, Services: 1, Backends: []string{backendAddr}, SNAT: []string{snatN(0)},
	}
}

// million has room for a million connections and the source ports for them.
func million(driver string) gatewayConfig {
	c := usual(driver)
	c.Table, c.Backends = 1<<20+1<<16, nil
	for i := range manyBackends {
		c.Backends = append(c.Backends, backendN(i))
	}
	for i := range 4 {
		c.SNAT = append(c.SNAT, snatN(1+i))
	}
	return c
}

// write stores the configuration in a folder and returns its file.
func (c gatewayConfig) write(dir, name string) (string, error) {
	text, err := c.render()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name+".yaml")
	return path, os.WriteFile(path, []byte(text), 0o644)
}

// writePrefixes stores n IPv4 prefixes and returns the file. No packet of the suite comes from them,
// but half of the addresses between its clients are there, so that looking a client up goes deep.
func writePrefixes(dir string, n int) (string, error) {
	path := filepath.Join(dir, fmt.Sprintf("deny-%d.txt", n))
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	w := bufio.NewWriter(f)
	for p := range prefixes(n) {
		fmt.Fprintln(w, p)
	}
	return path, errors.Join(w.Flush(), f.Close())
}

// prefixes yields n different prefixes: the odd addresses of the clients' network, and random ones of
// 16 to 32 bits in the rest of the address space.
func prefixes(n int) iter.Seq[netip.Prefix] {
	all := netip.MustParsePrefix("198.18.0.0/15")
	return func(yield func(netip.Prefix) bool) {
		a := netip.MustParseAddr(manyClients).Next()
		for i := 0; i < min(n, 1<<14); i++ {
			if !yield(netip.PrefixFrom(a, 32)) {
				return
			}
			a = a.Next().Next()
		}
		seen := map[netip.Prefix]bool{}
		for i := uint64(0); len(seen) < n-1<<14; i++ {
			x := role.Mix(i)
			var b [4]byte
			binary.BigEndian.PutUint32(b[:], uint32(x>>32))
			p := netip.PrefixFrom(netip.AddrFrom4(b), 16+int(uint32(x)%17)).Masked()
			if !seen[p] && !p.Overlaps(all) {
				if seen[p] = true; !yield(p) {
					return
				}
			}
		}
	}
}
