import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.security.MessageDigest;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** HikariCP over pgjdbc as a service has it: a pool that tests its connections, statements named at their fifth execution. */
public final class HikariStory {
    private static final boolean POOLED = System.getenv("THROUGH").equals("howdah");
    private static final String KILL =
            "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE usename = current_user AND datname = 'shop'";
    private static final String SLEEPERS =
            "SELECT count(*) FROM pg_stat_activity WHERE usename = current_user AND datname = 'shop' AND state = 'active' AND query LIKE 'SELECT pg_sleep(30)%'";
    private static final String BIG =
            "SELECT i, repeat(md5(i::text), 33) AS text FROM generate_series(1, 50000) i ORDER BY i";
    /** What PostgreSQL says the checksum of BIG is. */
    private static final String BIG_SUM =
            "SELECT md5(string_agg(i || text, '' ORDER BY i)) FROM (" + BIG + ") big";

    private interface Attempt {
        void run() throws Exception;
    }

    private static void ok(String what) {
        System.out.println("ok hikari: " + what);
    }

    private static void fail(String what, Object wanted, Object seen) {
        System.err.printf("FAILED hikari: %s%n  expected: %s%n  seen:     %s%n", what, wanted, seen);
        if (seen instanceof Throwable trouble) {
            trouble.printStackTrace();
        }
        System.exit(1);
    }

    private static void expect(String what, Object wanted, Object seen) {
        if (!String.valueOf(wanted).equals(String.valueOf(seen))) {
            fail(what, wanted, seen);
        }
    }

    private static void mustFail(String what, String sqlstate, Attempt attempt) throws Exception {
        try {
            attempt.run();
        } catch (SQLException error) {
            if (sqlstate != null && !sqlstate.equals(error.getSQLState())) {
                fail(what, sqlstate, error);
            }
            return;
        }
        fail(what, sqlstate == null ? "an error" : sqlstate, "none");
    }

    private static String url(String port, String database) {
        return "jdbc:postgresql://" + System.getenv("PGHOST") + ":" + port + "/" + database
                + "?prepareThreshold=5&sslmode=" + System.getenv("PGSSLMODE");
    }

    private static HikariDataSource pool() {
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl(url(System.getenv("PGPORT"), System.getenv("PGDATABASE")));
        config.setUsername(System.getenv("PGUSER"));
        config.setPassword(System.getenv("PGPASSWORD"));
        config.setMinimumIdle(2);
        config.setMaximumPoolSize(6);
        config.setConnectionTimeout(10_000);
        config.setValidationTimeout(2_000);
        config.setConnectionTestQuery("SELECT 1");
        return new HikariDataSource(config);
    }

    private static void run(Connection connection, String sql) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.execute(sql);
        }
    }

    private static String value(Connection connection, String sql, int... parameters) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            for (int i = 0; i < parameters.length; i++) {
                statement.setInt(i + 1, parameters[i]);
            }
            try (ResultSet rows = statement.executeQuery()) {
                rows.next();
                return rows.getString(1);
            }
        }
    }

    private static void firstSteps(HikariDataSource pool) throws Exception {
        try (Connection connection = pool.getConnection()) {
            expect("who and where", "app shop", value(connection, "SELECT current_user || ' ' || current_database()"));
            ok("connect");
            for (int i = 0; i < 7; i++) {
                mustFail("an unknown table", "42P01", () -> value(connection, "SELECT * FROM nowhere"));
                expect("the next answer", 2, value(connection, "SELECT 1 + ?", 1));
            }
            ok("an error and on");
            run(connection, "DROP TABLE IF EXISTS hikari_story; CREATE TABLE hikari_story (n int PRIMARY KEY, text text)");
        }
        try (Connection connection = pool.getConnection()) {
            connection.setAutoCommit(false);
            connection.setTransactionIsolation(Connection.TRANSACTION_READ_COMMITTED);
            run(connection, "INSERT INTO hikari_story VALUES (1, 'x')");
            Savepoint here = connection.setSavepoint("here");
            mustFail("a key twice", "23505", () -> run(connection, "INSERT INTO hikari_story VALUES (1, 'x')"));
            connection.rollback(here);
            connection.commit();
            run(connection, "INSERT INTO hikari_story VALUES (2, 'x')");
            // Given back in the middle: the pool rolls it back.
        }
        try (Connection connection = pool.getConnection()) {
            expect("what was committed", "{1}", value(connection, "SELECT array_agg(n) FROM hikari_story"));
            connection.setReadOnly(true);
            connection.setAutoCommit(false);
            mustFail("a write in a transaction that only reads", "25006", () -> run(connection, "DELETE FROM hikari_story"));
            connection.rollback();
        }
        ok("commit, rollback, savepoint, read only");
    }

    private static void prepared(HikariDataSource pool) throws Exception {
        Set<Integer> pids = ConcurrentHashMap.newKeySet();
        ExecutorService threads = Executors.newFixedThreadPool(6);
        List<Callable<Void>> clients = new ArrayList<>();
        for (int client = 0; client < 6; client++) {
            int base = client * 1_000_000;
            clients.add(() -> {
                for (int i = 0; i < 1000; i++) {
                    try (Connection connection = pool.getConnection()) {
                        boolean apart = i % 20 == 0;
                        connection.setAutoCommit(!apart);
                        try (PreparedStatement statement = connection.prepareStatement("SELECT ? + ?, pg_backend_pid()")) {
                            statement.setInt(1, base);
                            statement.setInt(2, i);
                            try (ResultSet rows = statement.executeQuery()) {
                                rows.next();
                                expect("a prepared statement's answer", base + i, rows.getInt(1));
                                pids.add(rows.getInt(2));
                            }
                        }
                        expect("an answer", i - base, value(connection, "SELECT ? - " + base, i));
                        if (apart) {
                            run(connection, "SELECT pg_sleep(0.002)");
                            connection.commit();
                        }
                    }
                }
                return null;
            });
        }
        for (Future<Void> done : threads.invokeAll(clients)) {
            done.get();
        }
        threads.shutdown();
        if (POOLED && pids.size() < 2) {
            fail("servers that served six clients", "two or three", pids);
        }
        ok("a prepared statement 1,000 times by each of six threads");
    }

    private static void batch(HikariDataSource pool) throws Exception {
        try (Connection connection = pool.getConnection()) {
            connection.setAutoCommit(false);
            try (PreparedStatement insert = connection.prepareStatement("INSERT INTO hikari_story VALUES (?, 'batch')")) {
                // Hibernate's batches of thirty.
                for (int i = 100; i < 1000; i++) {
                    insert.setInt(1, i);
                    insert.addBatch();
                    if (i % 30 == 9) {
                        expect("rows of a batch", true, Arrays.stream(insert.executeBatch()).allMatch(rows -> rows == 1));
                    }
                }
                insert.executeBatch();
            }
            connection.commit();
            expect("rows by batches", 900, value(connection, "SELECT count(*) FROM hikari_story WHERE text = 'batch'"));
            connection.commit();
        }
        ok("batch");
    }

    private static void cancel(HikariDataSource pool, Connection direct) throws Exception {
        long began = System.nanoTime();
        try (Connection connection = pool.getConnection(); Statement sleep = connection.createStatement()) {
            Thread striker = new Thread(() -> {
                try {
                    while (value(direct, SLEEPERS).equals("0") && System.nanoTime() - began < 10e9) {
                        Thread.sleep(50);
                    }
                    sleep.cancel();
                } catch (Exception error) {
                    fail("the cancel", "success", error);
                }
            });
            striker.start();
            mustFail("a cancelled statement", "57014", () -> sleep.execute("SELECT pg_sleep(30)"));
            striker.join();
            expect("the next answer", 3, value(connection, "SELECT ? + 0", 3));
        }
        if (System.nanoTime() - began > 15e9) {
            fail("nanoseconds until the cancel", "few", System.nanoTime() - began);
        }
        ok("cancel");
    }

    private static void large(HikariDataSource pool, String wanted) throws Exception {
        MessageDigest sum = MessageDigest.getInstance("MD5");
        try (Connection connection = pool.getConnection();
                Statement statement = connection.createStatement();
                ResultSet rows = statement.executeQuery(BIG)) {
            while (rows.next()) {
                sum.update((rows.getInt(1) + rows.getString(2)).getBytes());
            }
        }
        expect("the checksum of 50 MB", wanted, HexFormat.of().formatHex(sum.digest()));
        ok("a large result");
    }

    private static void reconnect(HikariDataSource pool, Connection direct) throws Exception {
        try (Connection connection = pool.getConnection()) {
            connection.setAutoCommit(false);
            value(connection, "SELECT 1");
            value(direct, KILL);
            mustFail("a query on a dead server", null, () -> value(connection, "SELECT 2"));
        }
        // A pooler may learn of a server's death only by using it.
        for (long began = System.nanoTime(); ; Thread.sleep(100)) {
            try (Connection connection = pool.getConnection()) {
                expect("the answer after that", 42, value(connection, "SELECT 42"));
                break;
            } catch (SQLException error) {
                if (System.nanoTime() - began > 5e9) {
                    fail("reconnect", "success within some seconds", error);
                }
            }
        }
        ok("reconnect after the servers were killed");
    }

    public static void main(String[] arguments) throws Exception {
        try (HikariDataSource pool = pool();
                Connection direct = DriverManager.getConnection(
                        url(System.getenv("DIRECT_PORT"), "postgres"), System.getenv("PGUSER"), System.getenv("PGPASSWORD"))) {
            firstSteps(pool);
            prepared(pool);
            batch(pool);
            cancel(pool, direct);
            large(pool, value(direct, BIG_SUM));
            reconnect(pool, direct);
        } catch (Exception error) {
            fail("the story", "no surprise", error);
        }
    }
}
