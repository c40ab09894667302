package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

// gatewayConfig is what the configurations of our gateway differ in.
type gatewayConfig struct {
	Driver   string // of both devices
	Table    int    // connections
	Services int    // of UDP, on ports from udpPort on
	Backends []string
	SNAT     []string
	Deny     string // file of listed prefixes; empty is none
}

// gatewayYAML is the configuration of our gateway in every measure.
var gatewayYAML = template.Must(template.New("gateway").Funcs(template.FuncMap{"join": strings.Join}).Parse(`devices:
  - {name: {{.Front}}, driver: {{.Driver}}}
  - {name: {{.Back}}, driver: {{.Driver}}}
snat: [{{join .SNAT ", "}}]
table: {size: {{.Table}}}
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
{{- range $i, $port := .Ports}}
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
		Ports                         []int
	}{gatewayConfig: c, Front: frontDev, Back: backDev, Address: serviceAddr, Backend: backendAddr, HashSize: 65537}
	if c.Services > 1 {
		data.HashSize = 251
	}
	for i := range c.Services {
		data.Ports = append(data.Ports, udpPort+i)
	}
	var out strings.Builder
	err := gatewayYAML.Execute(&out, data)
	return out.String(), err
}

// usual is one service, one backend and a table as most sites have.
func usual(driver string) gatewayConfig {
	return gatewayConfig{
		Driver: driver, Table: 1 << 17, Services: 1, Backends: []string{backendAddr}, SNAT: []string{"198.18.1.11"},
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
		c.SNAT = append(c.SNAT, fmt.Sprintf("198.18.1.%d", 12+i))
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

// writePrefixes stores n distinct IPv4 prefixes that no packet of the suite comes from, of mixed
// lengths, and returns the file.
func writePrefixes(dir string, n int) (string, error) {
	path := filepath.Join(dir, fmt.Sprintf("deny%d.txt", n))
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	w := bufio.NewWriter(f)
	for i := range n {
		// 20.0.0.0 and up in steps of 64 addresses: /26 to /32, never two that overlap.
		a := uint32(20)<<24 + uint32(i)<<6
		fmt.Fprintf(w, "%d.%d.%d.%d/%d\n", a>>24, a>>16&255, a>>8&255, a&255, 26+mix(uint64(i))>>32%7)
	}
	if err := w.Flush(); err != nil {
		return "", err
	}
	return path, f.Close()
}
