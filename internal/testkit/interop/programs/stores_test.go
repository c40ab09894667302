package programs

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// storePrograms are data bases.
func storePrograms() []program {
	return []program{
		{"redis", []string{"redis-server", "--version"}, "redis-cli with values of 5 MB: hashes; redis-benchmark from the peer and from the same stack, with and without pipelines", runRedis},
		{"memcached", []string{"memcached", "--version"}, "`-u nobody`, 4 threads: 400 values of up to 900 kB by text protocol, and by UDP: compared", runMemcached},
		{"PostgreSQL", []string{postgres("postgres"), "--version"}, "initdb, psql by TCP and by UNIX socket, COPY of 20 MB: hashes; pgbench with 10 clients, TPC-B and SELECT, from both sides; pg_basebackup", runPostgres},
	}
}

func runRedis(t *testing.T, b *bed) string {
	file, sum := content(t, b.dir, 5_000_000)
	server := b.host.start(t, "redis-server", "--port", "6379", "--bind", "127.0.0.1", hostAddr, hostAddr6, "--protected-mode", "no", "--save", "", "--dir", b.dir)
	b.opens(t, server, 6379)
	for _, from := range []struct {
		*place
		addr string
	}{{b.peer, hostAddr}, {b.peer, hostAddr6}, {b.host, hostAddr}, {b.host, "127.0.0.1"}} {
		cli := from.command("redis-cli", "-h", from.addr, "-x", "set", "k")
		in, err := os.Open(file)
		must(t, err)
		cli.Stdin = in
		if out, code := from.begin(t, cli).finish(t, patience); code != 0 || strings.TrimSpace(out) != "OK" {
			t.Errorf("set by %s: code %d, %s", from.addr, code, out)
		}
		must(t, in.Close())
		got := filepath.Join(b.dir, "got")
		out, err := os.Create(got)
		must(t, err)
		cli = from.command("redis-cli", "-h", from.addr, "--raw", "get", "k")
		cli.Stdout = out
		if _, code := from.begin(t, cli).finish(t, patience); code != 0 {
			t.Errorf("get by %s: code %d", from.addr, code)
		}
		must(t, out.Close(), os.Truncate(got, 5_000_000)) // without the last newline
		equal(t, "the value by "+from.addr, got, sum)
	}
	requests := 0
	for _, from := range []*place{b.peer, b.host} {
		for _, args := range [][]string{{"-n", "20000", "-c", "50"}, {"-n", "50000", "-c", "50", "-P", "16"}, {"-n", "2000", "-c", "200", "-d", "10000"}} {
			out := from.run(t, append([]string{"redis-benchmark", "-h", hostAddr, "-q", "-t", "set,get,lpush,lrange_100"}, args...)...)
			if n := strings.Count(out, "requests per second"); n < 4 {
				t.Errorf("redis-benchmark %v: %d results: %s", args, n, out)
			}
			n, _ := strconv.Atoi(args[1])
			requests += 4 * n
		}
	}
	server.stop(t)
	return fmt.Sprintf("8 transfers of 5 MB, %d requests", requests)
}

// memcachedClient sets and gets values by TCP, and gets by UDP, and compares.
const memcachedClient = `
import random, socket, sys
host = sys.argv[1]
random.seed(7)
want = {}
s = socket.create_connection((host, 11211), 20); f = s.makefile('rb')
for i in range(400):
    v = random.randbytes(random.choice([0, 1, 1000, 8192, 65536, 900000])); want[i] = v
    s.sendall(b'set k%d 0 0 %d\r\n%s\r\n' % (i, len(v), v)); assert f.readline() == b'STORED\r\n'
s.sendall(b''.join(b'get k%d\r\n' % i for i in range(400)))
for i in range(400):
    head = f.readline(); assert head == b'VALUE k%d 0 %d\r\n' % (i, len(want[i])), head
    assert f.read(len(want[i]) + 7) == want[i] + b'\r\nEND\r\n', i
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.settimeout(20)
n = 0
for i in range(400):
    if len(want[i]) > 1000: continue
    u.sendto(b'\0\7\0\0\0\1\0\0get k%d\r\n' % i, (host, 11211))
    d = u.recv(2000); assert d[8:] == b'VALUE k%d 0 %d\r\n%s\r\nEND\r\n' % (i, len(want[i]), want[i]); n += 1
print(sum(map(len, want.values())), n)
`

func runMemcached(t *testing.T, b *bed) string {
	needs(t, "python3")
	server := b.host.start(t, "memcached", "-u", "nobody", "-l", hostAddr, "-p", "11211", "-U", "11211", "-t", "4", "-m", "512")
	b.opens(t, server, 11211)
	var note string
	for _, from := range []*place{b.peer, b.host} {
		out := strings.Fields(from.run(t, "python3", "-c", memcachedClient, hostAddr))
		if len(out) != 2 {
			t.Fatalf("the client says %q", out)
		}
		bytes, _ := strconv.Atoi(out[0])
		note = fmt.Sprintf("2 times %d MB by TCP, %s values by UDP", bytes/1_000_000, out[1])
	}
	server.stopWith(t, unix.SIGTERM, 0)
	return note
}

// postgres returns the path of a program of the newest PostgreSQL that is installed: Debian keeps them out of PATH.
func postgres(name string) string {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(found) == 0 {
		return name
	}
	return found[len(found)-1]
}

func runPostgres(t *testing.T, b *bed) string {
	needs(t, postgres("initdb"), "setpriv", "python3")
	dir := filepath.Join(b.dir, "pg")
	owner, err := user.Lookup("postgres")
	must(t, err, os.Mkdir(dir, 0o700))
	uid, _ := strconv.Atoi(owner.Uid)
	gid, _ := strconv.Atoi(owner.Gid)
	must(t, os.Chown(dir, uid, gid))
	as := func(args ...string) []string {
		return append([]string{"setpriv", "--reuid", owner.Uid, "--regid", owner.Gid, "--clear-groups"}, args...)
	}
	b.host.run(t, as(postgres("initdb"), "-D", dir, "-A", "trust", "--no-sync")...)
	hba, err := os.ReadFile(filepath.Join(dir, "pg_hba.conf"))
	must(t, err, os.WriteFile(filepath.Join(dir, "pg_hba.conf"), append(hba, "host all all all trust\nhost replication all all trust\n"...), 0o600))
	server := b.host.start(t, as(postgres("postgres"), "-D", dir, "-k", dir, "-F", "-c", "listen_addresses=127.0.0.1,"+hostAddr+","+hostAddr6, "-c", "max_connections=60")...)
	b.opens(t, server, 5432)
	type client struct {
		*place
		host string
	}
	clients := []client{{b.peer, hostAddr}, {b.peer, hostAddr6}, {b.host, hostAddr}, {b.host, "127.0.0.1"}, {b.host, dir}}
	psql := func(c client, args ...string) string {
		t.Helper()
		await(t, "PostgreSQL is ready", func() bool {
			_, code := c.try(t, patience, postgres("pg_isready"), "-q", "-h", c.host)
			return code == 0
		})
		return c.run(t, append([]string{postgres("psql"), "-X", "-v", "ON_ERROR_STOP=1", "-A", "-t", "-U", "postgres", "-h", c.host}, args...)...)
	}
	b.host.run(t, postgres("pgbench"), "-q", "-i", "-s", "2", "-h", hostAddr, "-U", "postgres", "postgres")
	table := filepath.Join(b.dir, "table")
	b.peer.run(t, "python3", "-c", "import random,sys\nrandom.seed(1)\nf=open(sys.argv[1],'w')\nfor i in range(300000): f.write(f'{i}\\t{random.randbytes(28).hex()}\\n')", table)
	sum := sumOf(t, table)
	for i, c := range clients {
		got := fmt.Sprint(table, i)
		psql(c, "-c", fmt.Sprintf("create table t%d (i int, s text)", i), "-c", fmt.Sprintf(`\copy t%d from '%s'`, i, table), "-c", fmt.Sprintf(`\copy (select * from t%d order by i) to '%s'`, i, got))
		equal(t, "COPY through "+c.host, got, sum)
	}
	// A query that a cancel request on a second connection ends.
	if out, code := b.peer.try(t, patience, "timeout", "-s", "INT", "2", postgres("psql"), "-X", "-h", hostAddr, "-U", "postgres", "-c", "select pg_sleep(30)"); !strings.Contains(out, "canceling statement") {
		t.Errorf("a query that is cancelled: code %d, %s", code, out)
	}
	transactions := 0
	for _, c := range []client{clients[0], clients[2]} {
		for _, mode := range [][]string{{}, {"-S"}, {"-S", "-C", "-M", "prepared"}} {
			out := c.run(t, append([]string{postgres("pgbench"), "-n", "-c", "10", "-j", "2", "-T", "3", "-h", c.host, "-U", "postgres"}, append(mode, "postgres")...)...)
			if !strings.Contains(out, "number of failed transactions: 0 ") {
				t.Errorf("pgbench %v: %s", mode, out)
			}
			if m := regexp.MustCompile(`actually processed: (\d+)`).FindStringSubmatch(out); m != nil {
				n, _ := strconv.Atoi(m[1])
				transactions += n
			}
		}
	}
	if accounts := psql(clients[0], "-c", "select sum(abalance) = (select sum(tbalance) from pgbench_tellers) from pgbench_accounts"); strings.TrimSpace(accounts) != "t" {
		t.Errorf("the balances of pgbench differ: %s", accounts)
	}
	backup := filepath.Join(b.dir, "backup")
	b.peer.run(t, postgres("pg_basebackup"), "-h", hostAddr, "-U", "postgres", "-D", backup, "-X", "stream", "--no-sync", "-c", "fast")
	b.peer.run(t, postgres("pg_verifybackup"), backup)
	server.stopWith(t, unix.SIGINT, 0)
	return fmt.Sprintf("10 transfers of 20 MB, %d transactions", transactions)
}
