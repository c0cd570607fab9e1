import io.vertx.core.Future;
import io.vertx.core.Vertx;
import io.vertx.core.net.ClientSSLOptions;
import io.vertx.pgclient.PgBuilder;
import io.vertx.pgclient.PgConnectOptions;
import io.vertx.pgclient.PgConnection;
import io.vertx.pgclient.PgException;
import io.vertx.pgclient.SslMode;
import io.vertx.sqlclient.Pool;
import io.vertx.sqlclient.PoolOptions;
import io.vertx.sqlclient.PreparedStatement;
import io.vertx.sqlclient.Row;
import io.vertx.sqlclient.RowSet;
import io.vertx.sqlclient.SqlClient;
import io.vertx.sqlclient.SqlConnection;
import io.vertx.sqlclient.Transaction;
import io.vertx.sqlclient.Tuple;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

/** Vert.x' reactive client, which sends up to 256 requests ahead of their answers, and caches statements. */
public final class VertxStory {
    private static final boolean POOLED = System.getenv("THROUGH").equals("howdah");
    private static final String WRONG = "SELECT * FROM nowhere";
    private static final String KILL =
            "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE usename = current_user AND datname = 'shop'";
    private static final String SLEEPERS =
            "SELECT count(*) FROM pg_stat_activity WHERE usename = current_user AND datname = 'shop' AND state = 'active' AND query LIKE 'SELECT pg_sleep(30)%'";
    private static final String BIG =
            "SELECT i, repeat(md5(i::text), 33) AS text FROM generate_series(1, 50000) i ORDER BY i";
    /** What PostgreSQL says the checksum of BIG is. */
    private static final String BIG_SUM =
            "SELECT md5(string_agg(i || text, '' ORDER BY i)) FROM (" + BIG + ") big";

    private static void ok(String what) {
        System.out.println("ok vertx: " + what);
    }

    private static void fail(String what, Object wanted, Object seen) {
        System.err.printf("FAILED vertx: %s%n  expected: %s%n  seen:     %s%n", what, wanted, seen);
        if (seen instanceof Throwable trouble) {
            trouble.printStackTrace();
        }
        Runtime.getRuntime().halt(1);
    }

    private static void expect(String what, Object wanted, Object seen) {
        if (!String.valueOf(wanted).equals(String.valueOf(seen))) {
            fail(what, wanted, seen);
        }
    }

    private static <T> T await(Future<T> future) throws Exception {
        return future.toCompletionStage().toCompletableFuture().get(60, TimeUnit.SECONDS);
    }

    private static void mustFail(String what, String sqlstate, Future<?> attempt) {
        try {
            await(attempt);
        } catch (Exception error) {
            Throwable cause = error.getCause();
            String seen = cause instanceof PgException told ? told.getSqlState() : null;
            if (sqlstate != null && !sqlstate.equals(seen)) {
                fail(what, sqlstate, error);
            }
            return;
        }
        fail(what, sqlstate == null ? "an error" : sqlstate, "none");
    }

    private static PgConnectOptions options(String port, String database) {
        PgConnectOptions options = new PgConnectOptions()
                .setHost(System.getenv("PGHOST"))
                .setPort(Integer.parseInt(port))
                .setDatabase(database)
                .setUser(System.getenv("PGUSER"))
                .setPassword(System.getenv("PGPASSWORD"))
                .setCachePreparedStatements(true);
        if (System.getenv("PGSSLMODE").equals("require")) {
            options.setSslMode(SslMode.REQUIRE).setSslOptions(new ClientSSLOptions().setTrustAll(true));
        }
        return options;
    }

    private static Object value(SqlClient client, String sql, Object... parameters) throws Exception {
        RowSet<Row> rows = parameters.length == 0
                ? await(client.query(sql).execute())
                : await(client.preparedQuery(sql).execute(Tuple.from(parameters)));
        return rows.iterator().next().getValue(0);
    }

    private static void firstSteps(PgConnection connection) throws Exception {
        expect("who and where", "app shop", value(connection, "SELECT current_user || ' ' || current_database()"));
        ok("connect");

        mustFail("an unknown table", "42P01", connection.query(WRONG).execute());
        mustFail("an unknown table, prepared", "42P01", connection.preparedQuery(WRONG).execute());
        mustFail("a division by zero", "22012", connection.preparedQuery("SELECT 1 / $1::int").execute(Tuple.of(0)));
        expect("the next answer", 2, value(connection, "SELECT 1 + $1::int", 1));
        ok("an error and on");

        await(connection.query("SET client_min_messages = error; DROP TABLE IF EXISTS vertx_story; CREATE TABLE vertx_story (n int, text text)").execute());
        Transaction first = await(connection.begin());
        value(connection, "INSERT INTO vertx_story VALUES ($1, 'x') RETURNING n", 1);
        await(first.commit());
        Transaction second = await(connection.begin());
        value(connection, "INSERT INTO vertx_story VALUES ($1, 'x') RETURNING n", 2);
        await(second.rollback());
        // Its own transactions end with the first error, so that a savepoint would be of no use.
        await(connection.query("BEGIN").execute());
        value(connection, "INSERT INTO vertx_story VALUES ($1, 'x') RETURNING n", 3);
        await(connection.query("SAVEPOINT here").execute());
        mustFail("an unknown table", "42P01", connection.query(WRONG).execute());
        await(connection.query("ROLLBACK TO here").execute());
        await(connection.query("COMMIT").execute());
        expect("what was committed", "{1,3}", value(connection, "SELECT array_agg(n ORDER BY n)::text FROM vertx_story"));
        ok("commit, rollback, savepoint");
    }

    private static void prepared(Pool pool) throws Exception {
        Set<Integer> pids = ConcurrentHashMap.newKeySet();
        List<Future<?>> clients = new ArrayList<>();
        for (int client = 0; client < 3; client++) {
            clients.add(again(pool, client * 1_000_000, 0, pids));
        }
        await(Future.all(clients));
        if (POOLED && pids.size() < 2) {
            fail("servers that served three clients", "two or three", pids);
        }
        ok("a prepared statement 1,000 times by each of three");
    }

    private static Future<?> again(Pool pool, int base, int i, Set<Integer> pids) {
        if (i == 1000) {
            return Future.succeededFuture();
        }
        String sql = "SELECT $1::int + $2::int, pg_backend_pid()";
        Future<RowSet<Row>> rows = i % 20 != 0
                ? pool.preparedQuery(sql).execute(Tuple.of(base, i))
                : pool.withTransaction(connection -> connection.query("SELECT pg_sleep(0.002)").execute()
                        .compose(slept -> connection.preparedQuery(sql).execute(Tuple.of(base, i))));
        return rows.compose(seen -> {
            Row row = seen.iterator().next();
            expect("a prepared statement's answer", base + i, row.getInteger(0));
            pids.add(row.getInteger(1));
            return again(pool, base, i + 1, pids);
        });
    }

    private static void pipeline(PgConnection connection) throws Exception {
        List<Future<?>> sent = new ArrayList<>();
        for (int i = 0; i < 1000; i++) {
            int number = i;
            sent.add(connection.preparedQuery("SELECT $1::int * 2").execute(Tuple.of(number))
                    .onSuccess(rows -> expect("an answer of a pipeline", number * 2, rows.iterator().next().getInteger(0))));
        }
        await(Future.all(sent));
        Future<RowSet<Row>> before = connection.preparedQuery("SELECT 10 / $1::int").execute(Tuple.of(1));
        Future<RowSet<Row>> wrong = connection.preparedQuery("SELECT 10 / $1::int").execute(Tuple.of(0));
        Future<RowSet<Row>> after = connection.preparedQuery("SELECT 10 / $1::int").execute(Tuple.of(2));
        expect("before an error", 10, await(before).iterator().next().getInteger(0));
        mustFail("the error", "22012", wrong);
        expect("after an error", 5, await(after).iterator().next().getInteger(0));
        ok("pipeline");

        List<Tuple> rows = new ArrayList<>();
        for (int i = 0; i < 1000; i++) {
            rows.add(Tuple.of(i, "batch"));
        }
        await(connection.preparedQuery("INSERT INTO vertx_story VALUES ($1, $2)").executeBatch(rows));
        expect("rows by a batch", 1000L, value(connection, "SELECT count(*) FROM vertx_story WHERE text = 'batch'"));
        ok("batch");
    }

    private static void cancel(PgConnection connection, SqlConnection direct) throws Exception {
        Future<RowSet<Row>> sleep = connection.query("SELECT pg_sleep(30)").execute();
        long began = System.nanoTime();
        while (value(direct, SLEEPERS).equals(0L) && System.nanoTime() - began < 10e9) {
            Thread.sleep(50);
        }
        await(connection.cancelRequest());
        mustFail("a cancelled statement", "57014", sleep);
        if (System.nanoTime() - began > 15e9) {
            fail("nanoseconds until the cancel", "few", System.nanoTime() - began);
        }
        expect("the next answer", 3, value(connection, "SELECT $1::int", 3));
        ok("cancel");
    }

    private static void add(Iterable<Row> rows, MessageDigest sum) {
        for (Row row : rows) {
            sum.update((row.getInteger(0) + row.getString(1)).getBytes());
        }
    }

    private static void large(PgConnection connection, Object wanted) throws Exception {
        MessageDigest sum = MessageDigest.getInstance("MD5");
        add(await(connection.query(BIG).execute()), sum);
        expect("the checksum of 50 MB", wanted, HexFormat.of().formatHex(sum.digest()));

        // Portals of a thousand rows.
        MessageDigest bits = MessageDigest.getInstance("MD5");
        Transaction transaction = await(connection.begin());
        PreparedStatement statement = await(connection.prepare(BIG));
        var cursor = statement.cursor();
        do {
            add(await(cursor.read(1000)), bits);
        } while (cursor.hasMore());
        await(cursor.close());
        await(statement.close());
        await(transaction.commit());
        expect("the checksum by a cursor", wanted, HexFormat.of().formatHex(bits.digest()));
        ok("a large result");
    }

    private static void reconnect(Pool pool, SqlConnection direct) throws Exception {
        SqlConnection connection = await(pool.getConnection());
        connection.exceptionHandler(error -> { });
        await(connection.begin());
        value(connection, "SELECT 1");
        value(direct, KILL);
        mustFail("a query on a dead server", null, connection.query("SELECT 2").execute());
        connection.close();
        // A pooler may learn of a server's death only by using it.
        for (long began = System.nanoTime(); ; Thread.sleep(100)) {
            try {
                expect("the answer after that", 42, value(pool, "SELECT 42"));
                break;
            } catch (Exception error) {
                if (System.nanoTime() - began > 5e9) {
                    fail("reconnect", "success within some seconds", error);
                }
            }
        }
        ok("reconnect after the servers were killed");
    }

    public static void main(String[] arguments) throws Exception {
        Vertx vertx = Vertx.vertx();
        try {
            PgConnectOptions there = options(System.getenv("PGPORT"), System.getenv("PGDATABASE"));
            SqlConnection direct = await(PgConnection.connect(vertx, options(System.getenv("DIRECT_PORT"), "postgres")));
            Pool pool = PgBuilder.pool().with(new PoolOptions().setMaxSize(3)).connectingTo(there).using(vertx).build();
            PgConnection connection = await(PgConnection.connect(vertx, new PgConnectOptions(there).setPipeliningLimit(256)));
            // Told again by the query at hand.
            connection.exceptionHandler(error -> { });
            firstSteps(connection);
            prepared(pool);
            pipeline(connection);
            cancel(connection, direct);
            large(connection, value(direct, BIG_SUM));
            reconnect(pool, direct);
        } catch (Exception error) {
            fail("the story", "no surprise", error);
        }
        Runtime.getRuntime().halt(0);
    }
}
