package programs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// loginPrograms are OpenSSH's.
func loginPrograms() []program {
	return []program{
		{"OpenSSH", []string{"ssh", "-V"}, "client and server: 30 MB each way through ssh and sftp, a forwarded port of each kind: hashes", runSSH},
	}
}

func runSSH(t *testing.T, b *bed) string {
	needs(t, "/usr/sbin/sshd", "ssh-keygen", "sftp", "curl")
	must(t, os.MkdirAll("/run/sshd", 0o755)) // where sshd separates its privileges
	file, sum := content(t, b.dir, 30_000_000)
	small, smallSum := content(t, b.dir, 100_000)
	plain, _ := b.webServer(t, b.dir)
	key, hostKey := filepath.Join(b.dir, "id"), filepath.Join(b.dir, "hostkey")
	for _, k := range []string{key, hostKey} {
		runHere(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", k)
	}
	public, err := os.ReadFile(key + ".pub")
	must(t, err)
	keys := writeFile(t, filepath.Join(b.dir, "authorized"), string(public))
	config := writeFile(t, filepath.Join(b.dir, "sshd_config"), fmt.Sprintf("HostKey %s\nAuthorizedKeysFile %s\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nPidFile none\nSubsystem sftp internal-sftp\n", hostKey, keys))
	transfers := 0
	for _, side := range []struct{ client, server *place }{{b.peer, b.host}, {b.host, b.peer}, {b.host, b.host}} {
		server := side.server.start(t, "/usr/sbin/sshd", "-D", "-e", "-f", config, "-p", "2222", "-o", "ListenAddress="+side.server.addr, "-o", "ListenAddress="+side.server.addr6)
		await(t, "sshd listens", func() bool {
			return strings.Contains(server.log.String(), "listening on "+side.server.addr) || server.ended()
		})
		options := []string{"-F", "none", "-i", key, "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-o", "BatchMode=yes"}
		for _, addr := range []string{side.server.addr, side.server.addr6} {
			got := filepath.Join(b.dir, "got")
			ssh := append(append([]string{"ssh"}, options...), "-p", "2222", "root@"+addr)
			fetched := side.client.command(append(ssh, "cat", file)...)
			out, err := os.Create(got)
			must(t, err)
			fetched.Stdout = out
			if _, code := side.client.begin(t, fetched).finish(t, patience); code != 0 {
				t.Errorf("ssh %s cat: code %d", addr, code)
			}
			must(t, out.Close())
			equal(t, "from ssh cat", got, sum)
			sent := side.client.command(append(ssh, "sha256sum")...)
			in, err := os.Open(file)
			must(t, err)
			sent.Stdin = in
			if text, code := side.client.begin(t, sent).finish(t, patience); code != 0 || !strings.HasPrefix(text, sum) {
				t.Errorf("ssh %s sha256sum: code %d, %s", addr, code, text)
			}
			must(t, in.Close())
			batch := writeFile(t, filepath.Join(b.dir, "batch"), fmt.Sprintf("put %s %s\nget %s %s\n", file, got+"put", file, got+"get"))
			if strings.Contains(addr, ":") {
				addr = "[" + addr + "]"
			}
			side.client.run(t, append(append([]string{"sftp"}, options...), "-P", "2222", "-b", batch, "root@"+addr)...)
			equal(t, "put by sftp", got+"put", sum)
			equal(t, "got by sftp", got+"get", sum)
			transfers += 4
		}
		// -L: the client listens, and the server connects to the web server of the peer. -R is the other way round.
		for _, forward := range []struct {
			flag string
			from *place
			port int
		}{{"-L", side.client, 9001}, {"-R", side.server, 9002}} {
			if forward.flag == "-R" && side.client == side.server {
				continue
			}
			tunnel := side.client.start(t, append(append([]string{"ssh", "-N", "-o", "ExitOnForwardFailure=yes", "-p", "2222", forward.flag, fmt.Sprintf("127.0.0.1:%d:%s:%s", forward.port, peerAddr, plain)}, options...), "root@"+side.server.addr)...)
			got := filepath.Join(b.dir, "got")
			await(t, "the forwarded port is open", func() bool {
				if tunnel.ended() {
					t.Fatalf("%s: %s", tunnel, &tunnel.log)
				}
				_, code := forward.from.try(t, patience, "curl", "-sS", "--fail", "-o", got, fmt.Sprintf("http://127.0.0.1:%d/%s", forward.port, filepath.Base(small)))
				return code == 0
			})
			equal(t, "through a forwarded port", got, smallSum)
			tunnel.stopWith(t, unix.SIGTERM, 255)
		}
		server.stopWith(t, unix.SIGTERM, 255)
	}
	return fmt.Sprintf("%d transfers of 30 MB, 5 forwarded ports", transfers)
}
