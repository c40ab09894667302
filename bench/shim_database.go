package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// database is a PostgreSQL with the tables of pgbench, made when a row needs it. Its server refuses to run as root.
type database struct {
	dir  string
	make func() error // once
}

func newDatabase(dir string) *database {
	d := &database{dir: dir}
	d.make = sync.OnceValue(d.initialize)
	return d
}

// asPostgres returns the command that runs a program as the user of PostgreSQL.
func asPostgres(argv ...string) []string {
	return append([]string{"setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"}, argv...)
}

// postgresProgram returns the path of a program of PostgreSQL, which Debian keeps out of PATH.
func postgresProgram(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name); len(found) > 0 {
		return found[len(found)-1]
	}
	return name
}

// initialize makes the cluster and fills it, over AF_UNIX.
func (d *database) initialize() error {
	if err := os.Mkdir(d.dir, 0o755); err != nil {
		return err
	}
	if said, err := exec.Command("chown", "postgres:postgres", d.dir).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, said)
	}
	cluster := filepath.Join(d.dir, "cluster")
	control := func(args ...string) []string {
		return asPostgres(append([]string{postgresProgram("pg_ctl"), "-s", "-w", "-D", cluster, "-l", filepath.Join(d.dir, "setup.log")}, args...)...)
	}
	steps := [][]string{
		asPostgres(postgresProgram("initdb"), "-N", "-U", "postgres", "-A", "trust", "-D", cluster),
		control("-o", "-c listen_addresses= -c unix_socket_directories="+d.dir, "start"),
		{"pgbench", "-i", "-q", "-h", d.dir, "-U", "postgres", "postgres"},
		control("-m", "fast", "stop"),
	}
	for _, argv := range steps {
		if said, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w: %s", argv, err, said)
		}
	}
	hba, err := os.OpenFile(filepath.Join(cluster, "pg_hba.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(hba, "host all all %s/24 trust\n", peerAddr)
	return errors.Join(err, hba.Close())
}

// databaseRows has pgbench at the peer with short SELECTs.
func (b *shimBench) databaseRows() []shimRow {
	d := newDatabase(filepath.Join(b.dir, "postgres"))
	log := filepath.Join(b.dir, "pgbench")
	server := program("server", true, []string{postgresProgram("postgres"), "-V"}, "ready to accept connections",
		asPostgres(postgresProgram("postgres"), "-D", filepath.Join(d.dir, "cluster"), "-c", "listen_addresses="+hostAddr, "-c", "unix_socket_directories=")...)
	client := program("client", false, nil, "", "pgbench", "-S", "-n", "-c", "8", "-T", "3600", "-h", hostAddr, "-U", "postgres", "-l", "--log-prefix="+log, "postgres")
	return []shimRow{{
		name: "pgbench -S, 8 connections", unit: "transaction", part: "counter", count: "lines",
		needs: []string{"pgbench", "setpriv", postgresProgram("postgres")}, warmup: 2 * settled,
		parts: []shimPart{server, client, b.counter("lines", log)}, gates: atLeast(0.8),
		prepare: func() error {
			old, err := filepath.Glob(log + "*")
			for _, path := range old {
				err = errors.Join(err, os.Remove(path))
			}
			return errors.Join(err, d.make())
		},
	}}
}
