// What the Go exporter for Prometheus asks of the console, as it asks it: lib/pq of its time, which sends
// extra_float_digits at startup; the simple protocol; a connection per scrape; each view in its order, read by the names of
// its columns.
package main

import (
	"database/sql"
	"fmt"
	"math"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"
)

func ok(what string) { fmt.Printf("ok exporter-go: %s\n", what) }

func fail(what string, wanted, seen any) {
	fmt.Fprintf(os.Stderr, "FAILED exporter-go: %s\n  expected: %v\n  seen:     %v\n", what, wanted, seen)
	os.Exit(1)
}

func expect(what string, wanted, seen any) {
	if fmt.Sprint(wanted) != fmt.Sprint(seen) {
		fail(what, wanted, seen)
	}
}

func must(what string, err error) {
	if err != nil {
		fail(what, "success", err)
	}
}

// A metric and the column it is read from; older and newer names, of which there has to be one.
type metric struct {
	name    string
	columns []string
	factor  float64
}

type view struct {
	query   string
	prefix  string
	labels  []string
	metrics []metric
}

func one(name, column string) metric { return metric{name, []string{column}, 1} }

var perColumn = []view{
	{"SHOW databases;", "databases", []string{"name", "host", "port", "database", "force_user", "pool_mode"}, []metric{
		one("pool_size", "pool_size"),
		{"reserve_pool", []string{"reserve_pool", "reserve_pool_size"}, 1},
		one("max_connections", "max_connections"),
		one("current_connections", "current_connections"),
		one("paused", "paused"),
		one("disabled", "disabled"),
	}},
	{"SHOW stats_totals;", "stats_totals", []string{"database"}, []metric{
		one("queries_pooled_total", "query_count"),
		{"queries_duration_seconds_total", []string{"query_time"}, 1e-6},
		one("received_bytes_total", "bytes_received"),
		one("sent_bytes_total", "bytes_sent"),
		{"client_wait_seconds_total", []string{"wait_time"}, 1e-6},
		one("sql_transactions_pooled_total", "xact_count"),
		{"server_in_transaction_seconds_total", []string{"xact_time"}, 1e-6},
		one("client_parses_total", "client_parse_count"),
		one("server_parses_total", "server_parse_count"),
		one("binds_total", "bind_count"),
		one("server_assignments_total", "server_assignment_count"),
	}},
	{"SHOW pools;", "pools", []string{"database", "user"}, []metric{
		one("client_active_connections", "cl_active"),
		one("client_active_cancel_connections", "cl_active_cancel_req"),
		one("client_waiting_connections", "cl_waiting"),
		one("client_waiting_cancel_connections", "cl_waiting_cancel_req"),
		one("server_active_connections", "sv_active"),
		one("server_active_cancel_connections", "sv_active_cancel"),
		one("server_being_canceled_connections", "sv_being_canceled"),
		one("server_idle_connections", "sv_idle"),
		one("server_used_connections", "sv_used"),
		one("server_testing_connections", "sv_tested"),
		one("server_login_connections", "sv_login"),
		one("client_maxwait_seconds", "maxwait"),
	}},
}

// Rows by the names of their columns, as it scans them: whatever the type.
func rows(db *sql.DB, query string) (names []string, found []map[string]any) {
	answer, err := db.Query(query)
	must(query, err)
	defer answer.Close()
	names, err = answer.Columns()
	must(query, err)
	for answer.Next() {
		values, places := make([]any, len(names)), make([]any, len(names))
		for i := range values {
			places[i] = &values[i]
		}
		must(query, answer.Scan(places...))
		row := map[string]any{}
		for i, name := range names {
			row[name] = values[i]
		}
		found = append(found, row)
	}
	must(query, answer.Err())
	return names, found
}

func text(value any) string {
	switch value := value.(type) {
	case nil:
		return ""
	case []byte:
		return string(value)
	}
	return fmt.Sprint(value)
}

func number(what string, value any) float64 {
	switch value := value.(type) {
	case nil:
		return math.NaN()
	case int64:
		return float64(value)
	case []byte:
		parsed, err := strconv.ParseFloat(string(value), 64)
		must(what, err)
		return parsed
	case string:
		parsed, err := strconv.ParseFloat(value, 64)
		must(what, err)
		return parsed
	}
	fail(what, "a number", fmt.Sprintf("%T", value))
	return 0
}

func dsn(user, database string) string {
	return fmt.Sprintf("postgres://%s:%s@%s:%s/%s?sslmode=%s", user, os.Getenv("PGPASSWORD"), os.Getenv("PGHOST"),
		os.Getenv("PGPORT"), database, os.Getenv("PGSSLMODE"))
}

// One scrape: what Prometheus is shown, by name and labels.
func scrape() map[string]float64 {
	shown := map[string]float64{}
	connector, err := pq.NewConnector(dsn(os.Getenv("STATS_USER"), "pgbouncer"))
	must("the DSN", err)
	db := sql.OpenDB(connector)
	defer db.Close()
	db.SetMaxOpenConns(1)
	db.SetMaxIdleConns(1)

	_, ping := rows(db, "SHOW STATS")
	expect("the ping has rows", true, len(ping) > 0)

	names, version := rows(db, "SHOW VERSION;")
	expect("columns of SHOW VERSION", "[version]", names)
	expect("rows of SHOW VERSION", 1, len(version))
	said := text(version[0]["version"])
	if !strings.HasPrefix(said, "PgBouncer 1.") || len(strings.Split(said, ".")) != 3 {
		fail("the version", "PgBouncer X.Y.Z", said)
	}
	shown["version_info "+said] = 1

	names, lists := rows(db, "SHOW LISTS;")
	expect("columns of SHOW LISTS", 2, len(names))
	for _, row := range lists {
		shown["lists "+text(row[names[0]])] = number("a list", row[names[1]])
	}
	for _, list := range strings.Fields("databases users pools free_clients used_clients login_clients free_servers used_servers dns_names dns_zones dns_queries") {
		if _, found := shown["lists "+list]; !found {
			fail("SHOW LISTS", list, lists)
		}
	}

	names, config := rows(db, "SHOW CONFIG;")
	expect("columns of SHOW CONFIG", "[key value default changeable]", names)
	for _, row := range config {
		if key := text(row["key"]); key == "max_client_conn" || key == "max_user_connections" {
			shown["config "+key] = number(key, row["value"])
		}
	}

	names, clients := rows(db, "SHOW CLIENTS;")
	for _, needed := range []string{"database", "user", "state", "application_name"} {
		expect("SHOW CLIENTS has "+needed, true, strings.Contains(" "+strings.Join(names, " ")+" ", " "+needed+" "))
	}
	for _, row := range clients {
		shown[fmt.Sprintf("client_connections %s %s %s", text(row["database"]), text(row["user"]), text(row["state"]))]++
	}

	for _, i := range rand.Perm(len(perColumn)) {
		view := perColumn[i]
		_, found := rows(db, view.query)
		expect(view.query+" has rows", true, len(found) > 0)
		for _, row := range found {
			var labels []string
			for _, label := range view.labels {
				value, there := row[label]
				expect(view.query+" has "+label, true, there)
				labels = append(labels, text(value))
			}
			for _, metric := range view.metrics {
				shown[view.prefix+"_"+metric.name+" "+strings.Join(labels, " ")] = measured(view.query, row, metric)
			}
		}
	}
	return shown
}

func measured(query string, row map[string]any, metric metric) float64 {
	for _, column := range metric.columns {
		if value, there := row[column]; there {
			return number(query+" "+column, value) * metric.factor
		}
	}
	fail(query, metric.columns, row)
	return 0
}

// By another driver: what lib/pq of that time sends at startup would have to be ignored first.
func shop() *sql.DB {
	db, err := sql.Open("pgx", dsn(os.Getenv("PGUSER"), os.Getenv("PGDATABASE")))
	must("the DSN", err)
	return db
}

func main() {
	scrape()
	ok("each view has what is read from it")

	// Two clients with servers of their own, and a hundred queries.
	db := shop()
	defer db.Close()
	before := scrape()
	for range 100 {
		_, err := db.Exec("SELECT 1")
		must("a query", err)
	}
	var open []*sql.Tx
	for range 2 {
		tx, err := db.Begin()
		must("begin", err)
		_, err = tx.Exec("SELECT pg_sleep(0.1)")
		must("a query", err)
		open = append(open, tx)
	}
	after := scrape()
	grown := func(name string) float64 { return after[name+" shop"] - before[name+" shop"] }
	for name, least := range map[string]float64{
		"stats_totals_queries_pooled_total":                100,
		"stats_totals_sql_transactions_pooled_total":       100,
		"stats_totals_server_assignments_total":            100,
		"stats_totals_queries_duration_seconds_total":      0.2,
		"stats_totals_server_in_transaction_seconds_total": 0.001,
		"stats_totals_received_bytes_total":                1400,
		"stats_totals_sent_bytes_total":                    5000,
	} {
		if grown(name) < least || grown(name) > least*1e6 {
			fail(name, fmt.Sprint("at least ", least, " more"), grown(name))
		}
	}
	ok("counters count, times are seconds")
	for name, least := range map[string]float64{
		"pools_client_active_connections shop app": 2,
		"pools_server_active_connections shop app": 2,
		"client_connections shop app active":       2,
		"config max_client_conn":                   100,
	} {
		if after[name] < least {
			fail(name, fmt.Sprint("at least ", least), after[name])
		}
	}
	for name, value := range after {
		if strings.HasPrefix(name, "databases_pool_size shop ") {
			expect(name, 3, value)
		}
	}
	for _, tx := range open {
		must("rollback", tx.Rollback())
	}
	ok("gauges show what is there")

	// The exporter closes its connection, and says so: no scrape leaves a client behind.
	for range 20 {
		scrape()
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		seen := scrape()["client_connections pgbouncer "+os.Getenv("STATS_USER")+" active"]
		if seen == 1 {
			break
		}
		if time.Now().After(end) {
			fail("clients of the console", 1, seen)
		}
	}
	ok("twenty scrapes leave nobody behind")
}
