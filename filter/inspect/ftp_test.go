package inspect

import (
	"fmt"
	"testing"
)

const bounceRules = `alert tcp any any -> any 21 (flow:to_server,established; content:"PORT"; nocase; ftpbounce; pcre:"/^PORT/smi"; sid:1;)
alert ftp any any -> any any (ftpbounce; sid:2;)`

// A PORT command with an address that is not the client's is a bounce, however it is cut; the judge is TestSuricataFTPBounce.
func TestFTPBounce(t *testing.T) {
	own := fmt.Sprintf("%d,%d,%d,%d", client[0], client[1], client[2], client[3])
	for command, want := range map[string]bool{
		"PORT 192,0,2,99,4,1\r\n":                               true,
		"port 192,0,2,99,4,1\r\n":                               true,
		"PORT\t192,0,2,99,4,1\r\n":                              true,
		"PORT  192 , 0 ,2,99,4,1\r\n":                           true,
		"PORT " + own + ",4,1\r\n":                              false,
		"PORT " + own + ",4,1\r\nPORT 192,0,2,99,4,1\r\n":       true,
		"CWD a\r\nPORT 192,0,2,99,4,1\r\nLIST\r\n":              true,
		"PORT 192,0,2,99,4,1":                                   false, // no whole line yet
		"PORT 192,0,2\r\n":                                      false,
		"PORT 192,0,2,999,4,1\r\n":                              false,
		"SITE PORT 192,0,2,99,4,1\r\n":                          false,
		"EPRT |1|192.0.2.99|1025|\r\nSITE PORT 192,0,2,9,4,1\n": false,
	} {
		for _, mss := range []int{1, 3, 1400} {
			l := newLab(t, bounceRules)
			c := l.tcp(21).open()
			c.send(false, "220 ready\r\n", 1400).send(true, "USER a\r\n", 1400).send(false, "331 who\r\n", 1400)
			c.send(true, command, mss)
			c.close()
			found := map[uint32]bool{}
			for _, a := range l.alerts {
				found[a.Rule.SID] = true
			}
			if found[1] != want || found[2] != want {
				t.Errorf("%q in segments of %d: %v, want %v", command, mss, found, want)
			}
		}
	}
}

// What a server says is no command.
func TestFTPBounceIsOfClients(t *testing.T) {
	l := newLab(t, bounceRules+"\nalert ftp any any -> any any (content:\"PORT\"; ftpbounce; sid:3;)")
	c := l.tcp(21).open().send(false, "220 ready\r\n", 1400).send(true, "USER a\r\n", 1400)
	c.send(false, "PORT 192,0,2,99,4,1\r\n", 1400).close()
	if len(l.alerts) > 0 {
		t.Errorf("%d alerts", len(l.alerts))
	}
}
