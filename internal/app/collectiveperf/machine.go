package collectiveperf

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// Machine describes this machine to who starts ranks on it.
type Machine struct {
	Cores         int         `json:"cores"`
	Interfaces    []Interface `json:"interfaces"`
	ReceiveBuffer int         `json:"tcp_receive_buffer_bytes"` // most, of a connection; 0 is unknown
	SendBuffer    int         `json:"tcp_send_buffer_bytes"`
	Advice        []string    `json:"advice"`
}

// Interface may be a rail.
type Interface struct {
	Name      string   `json:"name"`
	Addresses []string `json:"addresses"`
	MTU       int      `json:"mtu"`
	Speed     int      `json:"megabits_per_second"` // 0 is unknown
	Node      int      `json:"numa_node"`           // -1 is unknown
}

// Look reads the state of the machine. It changes nothing.
func Look() (m Machine, err error) {
	m.Cores = runtime.GOMAXPROCS(0)
	interfaces, err := net.Interfaces()
	if err != nil {
		return m, err
	}
	fastest := 0
	for _, i := range interfaces {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil || len(addrs) == 0 {
			continue
		}
		folder := filepath.Join("/sys/class/net", i.Name)
		r := Interface{Name: i.Name, MTU: i.MTU, Speed: max(number(filepath.Join(folder, "speed"), 0), 0), Node: number(filepath.Join(folder, "device/numa_node"), -1)}
		for _, a := range addrs {
			if p, ok := a.(*net.IPNet); ok && !p.IP.IsLinkLocalUnicast() {
				r.Addresses = append(r.Addresses, p.IP.String())
			}
		}
		if len(r.Addresses) > 0 {
			m.Interfaces, fastest = append(m.Interfaces, r), max(fastest, r.Speed)
		}
	}
	m.ReceiveBuffer, m.SendBuffer = last("/proc/sys/net/ipv4/tcp_rmem"), last("/proc/sys/net/ipv4/tcp_wmem")
	m.advise(fastest)
	return m, nil
}

// advise adds what would make collective operations faster here.
func (m *Machine) advise(fastest int) {
	var rails []string
	for _, i := range m.Interfaces {
		if fastest > 0 && i.Speed == fastest {
			rails = append(rails, i.Addresses[0])
		}
		if i.Speed >= 10000 && i.MTU < 9000 {
			m.Advice = append(m.Advice, i.Name+": the MTU is "+strconv.Itoa(i.MTU)+"; 9000 costs less CPU where all of the network carries it")
		}
	}
	if len(rails) > 1 {
		m.Advice = append(m.Advice, "several interfaces are as fast: use them as rails by --rail "+strings.Join(rails, ","))
	}
	// 1 ms there and back at the speed of the fastest interface.
	if need := fastest * 1e6 / 8 / 1000; m.ReceiveBuffer > 0 && min(m.ReceiveBuffer, m.SendBuffer) < need {
		m.Advice = append(m.Advice, "TCP's buffers are below the "+strconv.Itoa(need)+" bytes of 1 ms at full speed: raise the last number of net.ipv4.tcp_rmem and tcp_wmem")
	}
	if len(m.Interfaces) == 0 {
		m.Advice = append(m.Advice, "there is no interface with an address but loopback: ranks on other machines cannot be reached")
	}
}

// number reads a number of a file.
func number(path string, none int) int {
	text, err := os.ReadFile(path)
	if err != nil {
		return none
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return none
	}
	return n
}

// last reads the last number of a line; 0 is none.
func last(path string) int {
	text, err := os.ReadFile(path)
	if f := strings.Fields(string(text)); err == nil && len(f) > 0 {
		n, _ := strconv.Atoi(f[len(f)-1]) // 0 is unknown
		return n
	}
	return 0
}
